// SPDX-License-Identifier: Apache-2.0
#include "worker_contender.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <sstream>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/transports/tcp/tcp_transport.h"
#include "pipe.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace cohort::internal::collectives;

struct Order {
  std::int64_t bytes = 0;
  std::int64_t steps = 0;  // 0: the end
};

// Numbers that stay where they are from order to order, as gradients do.
class Rank {
 public:
  explicit Rank(MeshOptions options)
      : communicator_(connect_over_tcp(std::move(options)), {.timeout = std::chrono::hours(4)}) {}

  std::int64_t obey(Order order) {
    std::array<Order, 1> all = {order};
    communicator_.broadcast(bytes_of(all), 0);
    if (all[0].steps == 0) return 0;
    const auto bytes = static_cast<std::size_t>(all[0].bytes);
    if (bytes_ != bytes) numbers_ = communicator_.allocate(bytes);
    bytes_ = bytes;
    prove(bytes);
    communicator_.barrier();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < all[0].steps; ++i) {
      communicator_.all_reduce({numbers_.get(), bytes}, kFloat32);
    }
    communicator_.barrier();
    order_ = all[0];
    return std::chrono::nanoseconds(Clock::now() - start).count();
  }
  bool goes_on() const { return order_.steps != 0; }
  void serve() {
    do {
      order_ = {};
      obey({});
    } while (goes_on());
  }

 private:
  void fill(std::size_t bytes, float value) {
    auto* numbers = reinterpret_cast<float*>(numbers_.get());
    std::fill(numbers, numbers + bytes / sizeof(float), value);
  }
  void prove(std::size_t bytes) {
    fill(bytes, static_cast<float>(communicator_.rank() + 1));
    communicator_.all_reduce({numbers_.get(), bytes}, kFloat32);
    const float last = reinterpret_cast<const float*>(numbers_.get())[bytes / sizeof(float) - 1];
    COHORT_CHECK(last == expected_sum(communicator_.size()), "expected the sum ",
                 expected_sum(communicator_.size()), ", got ", last);
    fill(bytes, 0);
  }

  Communicator communicator_;
  std::shared_ptr<std::byte> numbers_;
  std::size_t bytes_ = 0;
  Order order_ = {};
};

}  // namespace

int serve_ranks(int ranks, bool shared_memory) {
  std::vector<std::string> addresses(static_cast<std::size_t>(ranks));
  std::vector<Socket> listeners;
  for (std::string& address : addresses) listeners.push_back(listen_on_free_port(&address));
  const auto options = [&](std::size_t rank) {
    return MeshOptions{.rank = static_cast<int>(rank),
                       .addresses = addresses,
                       .shared_memory = shared_memory,
                       .listener = std::move(listeners[rank])};
  };
  for (std::size_t rank = 1; rank < addresses.size(); ++rank) {
    if (fork() != 0) continue;
    try {
      Rank(options(rank)).serve();
      _exit(0);
    } catch (const std::exception&) {
      _exit(1);  // rank 0 says why
    }
  }
  Rank first(options(0));
  const int status = serve_lines("cohort", [&](const std::string& line) {
    std::istringstream in(line);
    std::string run;
    Order order;
    in >> run >> order.bytes >> order.steps;
    return std::to_string(first.obey(order));
  });
  first.obey({});
  while (wait(nullptr) > 0) {
  }
  return status;
}

struct SharedReduceLimit::Shared {
  std::atomic<std::int64_t> steps;  // of the round that begins
  std::atomic<std::int64_t> round;
  std::atomic<std::int64_t> meetings;
  float* at[4];  // two inputs and two results, where both processes have them
};

namespace {

void spin_until(const std::atomic<std::int64_t>& value, std::int64_t at_least) {
  while (value.load(std::memory_order_acquire) < at_least) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

void add_into_both(float* const (&at)[4], std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float sum = at[0][i] + at[1][i];
    at[2][i] = sum;
    at[3][i] = sum;
  }
}

// Both processes call it; returns when both have done all steps.
template <class S>
void add_steps(S& shared, std::int64_t floats, bool first, std::int64_t steps) {
  const std::int64_t half = floats / 2;
  for (std::int64_t i = 0; i < steps; ++i) {
    add_into_both(shared.at, first ? 0 : half, first ? half : floats);
    const std::int64_t met = shared.meetings.fetch_add(1, std::memory_order_acq_rel);
    spin_until(shared.meetings, met / 2 * 2 + 2);
  }
}

}  // namespace

SharedReduceLimit::SharedReduceLimit(std::int64_t bytes) : floats_(bytes / 4) {
  const auto array = static_cast<std::size_t>(bytes + 63) / 64 * 64;
  const std::size_t all = 4096 + 4 * array;
  void* const memory =
      mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  COHORT_CHECK(memory != MAP_FAILED, "no memory");
  std::memset(memory, 0, all);
  shared_ = new (memory) Shared{};
  for (std::size_t i = 0; i < 4; ++i) {
    shared_->at[i] = reinterpret_cast<float*>(static_cast<std::byte*>(memory) + 4096 + i * array);
  }
  child_ = fork();
  if (child_ != 0) return;
  for (std::int64_t round = 1;; ++round) {
    while (shared_->round.load(std::memory_order_acquire) < round) {
      usleep(200);
      if (getppid() == 1) _exit(0);
    }
    add_steps(*shared_, floats_, /*first=*/false, shared_->steps.load());
  }
}

SharedReduceLimit::~SharedReduceLimit() {
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

double SharedReduceLimit::us(std::int64_t steps) {
  // One step that is not timed: the other process may still sleep.
  const auto round = [&](std::int64_t n) {
    shared_->steps.store(n);
    shared_->round.fetch_add(1, std::memory_order_acq_rel);
  };
  round(steps + 1);
  add_steps(*shared_, floats_, /*first=*/true, 1);
  const auto start = Clock::now();
  add_steps(*shared_, floats_, /*first=*/true, steps);
  const std::chrono::duration<double, std::micro> spent = Clock::now() - start;
  return spent.count() / static_cast<double>(steps);
}

}  // namespace cohort::bench
