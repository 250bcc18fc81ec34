// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store_keeper.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <stop_token>
#include <thread>
#include <utility>

#include "cohort/base/mutex.h"
#include "cohort/base/running_time.h"
#include "cohort/cluster/store/state.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::cluster {
namespace {

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
      const base::MutexLock lock(mutex);
      const uint64_t ticket = ++tickets;
      asked[ticket] = std::move(answer);
      state.ask(ticket, request, look());
      due = take_due();
      changed.notify_all();
    }
    tell(due);
  }

  void close(const std::string& why) {
    Due due;
    {
      const base::MutexLock lock(mutex);
      state.close(why);
      due = take_due();
    }
    tell(due);
  }

  // Whoever looks first after a pause, the thread or one who asks, leaves it out of everybody's
  // lease before anybody is judged.
  StoreState::Time look() COHORT_REQUIRES(mutex) {
    const auto stopped = running.look(base::BootClock::now());
    if (stopped.count() > 0) state.keeper_was_stopped(stopped, running.now());
    return running.now();
  }

  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Due due;
      {
        const base::MutexLock lock(mutex);
        const auto now = look();
        state.advance(now);
        due = take_due();
        if (due.empty()) {
          const uint64_t before = tickets;
          changed.wait_for(mutex, stop, rest(now),
                           [&]() COHORT_REQUIRES(mutex) { return tickets != before; });
        }
      }
      tell(due);
    }
  }
  // How long nothing is to be done, but for looking at the clock.
  std::chrono::nanoseconds rest(StoreState::Time now) const COHORT_REQUIRES(mutex) {
    const auto next = state.next_event();
    if (next == StoreState::Time::max() && state.is_idle()) return kIdle;
    return std::clamp<std::chrono::nanoseconds>(next - now, std::chrono::milliseconds(1),
                                                base::RunningTime::kLookEvery);
  }

  base::Mutex mutex;
  std::condition_variable_any changed;
  StoreState state COHORT_GUARDED_BY(mutex);
  base::RunningTime running COHORT_GUARDED_BY(mutex){base::BootClock::now()};
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
      std::rethrow_exception(rpc::error_with(reply.code, reply.text, "the store"));
    }
    return reply;
  });
}

}  // namespace cohort::internal::cluster
