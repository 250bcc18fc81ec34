// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store_keeper.h"

#include <condition_variable>
#include <future>
#include <stop_token>
#include <thread>
#include <utility>

#include "cohort/base/mutex.h"
#include "cohort/cluster/store/state.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal {
namespace {

using Clock = std::chrono::steady_clock;

// A keeper that wakes so much too late was stopped, and has heard nobody meanwhile.
constexpr std::chrono::milliseconds kLate{500};
// Without anything to do; a wait has an end.
constexpr std::chrono::hours kIdle{1};

}  // namespace

struct StoreKeeper::Impl {
  using Due = std::vector<std::pair<Answer, StoreReply>>;

  Impl() {
    // A thread as it is, not one of runtime's: programs without LibTorch keep stores.
    thread = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  ~Impl() {
    thread.request_stop();
    thread.join();
    close("the process that keeps the job's store ends");
  }

  Due take_due() COHORT_REQUIRES(mutex) {
    Due due;
    for (auto& [ticket, reply] : state.take_answers()) {
      const auto found = asked.find(ticket);
      if (found == asked.end()) continue;
      due.emplace_back(std::move(found->second), std::move(reply));
      asked.erase(found);
    }
    return due;
  }
  // Without the mutex: an answer may ask again.
  static void tell(const Due& due) {
    for (const auto& [answer, reply] : due) answer(reply);
  }

  void ask(const StoreRequest& request, Answer answer) {
    Due due;
    {
      const MutexLock lock(mutex);
      const uint64_t ticket = ++tickets;
      asked[ticket] = std::move(answer);
      state.ask(ticket, request, Clock::now());
      due = take_due();
      changed.notify_all();
    }
    tell(due);
  }

  void close(const std::string& why) {
    Due due;
    {
      const MutexLock lock(mutex);
      state.close(why);
      due = take_due();
    }
    tell(due);
  }

  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Due due;
      {
        const MutexLock lock(mutex);
        const auto next = std::min(state.next_event(), Clock::now() + kIdle);
        const uint64_t before = tickets;
        changed.wait_until(mutex, stop, next,
                           [&]() COHORT_REQUIRES(mutex) { return tickets != before; });
        const auto now = Clock::now();
        if (now - next > kLate) {
          state.postpone_leases(std::chrono::duration_cast<std::chrono::milliseconds>(now - next));
        }
        state.advance(now);
        due = take_due();
      }
      tell(due);
    }
  }

  Mutex mutex;
  std::condition_variable_any changed;
  StoreState state COHORT_GUARDED_BY(mutex);
  uint64_t tickets COHORT_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Answer> asked COHORT_GUARDED_BY(mutex);
  std::jthread thread;
};

StoreKeeper::StoreKeeper() : impl_(std::make_shared<Impl>()) {}
StoreKeeper::~StoreKeeper() = default;

void StoreKeeper::ask(const StoreRequest& request, Answer answer) {
  impl_->ask(request, std::move(answer));
}

void StoreKeeper::close(const std::string& why) { impl_->close(why); }

std::shared_ptr<Store> StoreKeeper::store() const {
  return std::make_shared<Store>([impl = impl_](const StoreRequest& request) {
    StoreRequest mine = request;
    mine.is_keeper = true;
    std::promise<StoreReply> answered;
    impl->ask(mine, [&answered](const StoreReply& reply) { answered.set_value(reply); });
    StoreReply reply = answered.get_future().get();
    if (reply.code != ErrorCode::kOk) {
      std::rethrow_exception(error_with(reply.code, reply.text, "the store"));
    }
    return reply;
  });
}

}  // namespace cohort::internal
