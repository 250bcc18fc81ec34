// SPDX-License-Identifier: Apache-2.0
//
// The queue, first by itself, then in thousands of simulated jobs whose workers die, come back and
// fail in the order that a seed says. K03, K05, K06, K09 of the conformance list.
#include "cohort/coordinator/internal/closure_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

ClosurePtr closure_of(uint64_t id) {
  auto out = std::make_shared<Closure>();
  out->id = id;
  return out;
}

std::exception_ptr an_error(const char* text) {
  return std::make_exception_ptr(InvalidArgument(text));
}

std::vector<uint64_t> ids_of(const std::vector<ClosurePtr>& closures) {
  std::vector<uint64_t> out;
  for (const ClosurePtr& each : closures) out.push_back(each->id);
  return out;
}

std::vector<uint64_t> cancelled_ids(ClosureQueue& queue) {
  std::vector<uint64_t> out;
  for (const CancelledClosure& each : queue.take_cancelled()) out.push_back(each.closure->id);
  return out;
}

TEST(ClosureQueue, HandsOutInTheOrderOfScheduling) {
  ClosureQueue queue({.capacity = 3});
  EXPECT_TRUE(queue.is_idle());
  for (const uint64_t id : {1, 2, 3}) queue.put(closure_of(id));
  EXPECT_TRUE(queue.is_full());
  EXPECT_THROW(queue.put(closure_of(4)), Internal);
  EXPECT_EQ(ids_of(queue.take(0, 2)), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(ids_of(queue.take(1, 2)), (std::vector<uint64_t>{3}));
  EXPECT_EQ(queue.end(1, 1), nullptr) << "it runs on worker 0";
  EXPECT_NE(queue.end(0, 1), nullptr);
  EXPECT_EQ(queue.end(0, 1), nullptr) << "it has ended before";
  EXPECT_NE(queue.end(0, 2), nullptr);
  EXPECT_NE(queue.end(1, 3), nullptr);
  EXPECT_TRUE(queue.is_idle());
}

TEST(ClosureQueue, AnErrorStopsEverythingUntilItIsTaken) {
  ClosureQueue queue({});
  for (uint64_t id = 1; id <= 5; ++id) queue.put(closure_of(id));
  queue.take(0, 1);
  queue.take(1, 1);
  queue.fail(0, 1, an_error("first"));
  EXPECT_TRUE(queue.take(0, 1).empty()) << "nothing is handed out any more";
  EXPECT_FALSE(queue.is_error_ripe()) << "function 2 still runs";
  EXPECT_TRUE(cancelled_ids(queue).empty());
  queue.fail(1, 2, an_error("second"));
  ASSERT_TRUE(queue.is_error_ripe());
  EXPECT_EQ(cancelled_ids(queue), (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(
      testing::error_text<InvalidArgument>([&] { std::rethrow_exception(queue.take_error()); }),
      "first");
  EXPECT_FALSE(queue.has_error());
  queue.put(closure_of(6));
  EXPECT_EQ(ids_of(queue.take(0, 9)), (std::vector<uint64_t>{6}));
}

TEST(ClosureQueue, ALostWorkersFunctionsGoToTheEnd) {
  ClosureQueue queue({});
  for (uint64_t id = 1; id <= 4; ++id) queue.put(closure_of(id));
  queue.take(0, 2);
  queue.lose_worker(0);
  EXPECT_EQ(queue.end(0, 1), nullptr) << "an answer that comes late counts for nothing";
  EXPECT_EQ(ids_of(queue.take(1, 9)), (std::vector<uint64_t>{3, 4, 1, 2}));
}

TEST(ClosureQueue, ALostWorkersFunctionsAreCancelledByAnError) {
  ClosureQueue queue({});
  for (uint64_t id = 1; id <= 2; ++id) queue.put(closure_of(id));
  queue.take(0, 1);
  queue.take(1, 1);
  queue.fail(0, 1, an_error("first"));
  queue.lose_worker(1);
  EXPECT_TRUE(queue.is_error_ripe());
  EXPECT_EQ(cancelled_ids(queue), (std::vector<uint64_t>{2}));
}

TEST(ClosureQueue, WhatWasNotBegunIsNext) {
  ClosureQueue queue({});
  for (uint64_t id = 1; id <= 4; ++id) queue.put(closure_of(id));
  queue.take(0, 3);
  queue.hand_back(0, 3);
  queue.hand_back(0, 2);
  EXPECT_EQ(ids_of(queue.take(1, 9)), (std::vector<uint64_t>{2, 3, 4}));
}

TEST(ClosureQueue, AnErrorForGoodStays) {
  ClosureQueue queue({});
  for (uint64_t id = 1; id <= 2; ++id) queue.put(closure_of(id));
  queue.take(0, 1);
  queue.fail_for_good(an_error("ps 0 is gone"));
  ASSERT_TRUE(queue.is_error_ripe()) << "nobody waits for what runs";
  const auto cancelled = queue.take_cancelled();
  ASSERT_EQ(cancelled.size(), 2U);
  EXPECT_NE(cancelled[0].error, nullptr);
  EXPECT_NE(cancelled[1].error, nullptr);
  queue.take_error();
  EXPECT_TRUE(queue.has_error());
}

TEST(ClosureQueue, StepsBeyondTheBoundWaitAndOthersDoNot) {
  ClosureQueue queue({.staleness_bound = 1});
  queue.join_worker(0);
  queue.join_worker(1);
  for (uint64_t id = 1; id <= 8; ++id) queue.put(closure_of(id));
  EXPECT_EQ(ids_of(queue.take(1, 1)), (std::vector<uint64_t>{1}));
  EXPECT_EQ(ids_of(queue.take(0, 9)), (std::vector<uint64_t>{2, 3})) << "worker 1 has ended none";
  queue.end(0, 2);
  queue.end(0, 3);
  EXPECT_TRUE(queue.take(0, 9).empty());
  EXPECT_FALSE(queue.can_take(0));
  EXPECT_TRUE(queue.can_take(1)) << "the slowest may always";
  queue.fail(1, 1, an_error("a step that throws is one, too"));
  queue.take_error();
  EXPECT_TRUE(queue.is_idle());
  const ClosurePtr evaluation = closure_of(11);
  evaluation->is_step = false;
  for (const ClosurePtr& each : {closure_of(9), closure_of(10), evaluation, closure_of(12)}) {
    queue.put(each);
  }
  EXPECT_EQ(ids_of(queue.take(0, 9)), (std::vector<uint64_t>{9, 10, 11}))
      << "all are equal again, and an evaluation is no step";
  EXPECT_EQ(ids_of(queue.take(1, 9)), (std::vector<uint64_t>{12}));
}

TEST(ClosureQueue, WithABoundALostWorkerIsNotWaitedFor) {
  ClosureQueue queue({.staleness_bound = 0});
  queue.join_worker(0);
  queue.join_worker(1);
  for (uint64_t id = 1; id <= 3; ++id) queue.put(closure_of(id));
  queue.take(1, 1);
  queue.take(0, 1);
  queue.end(0, 2);
  EXPECT_FALSE(queue.can_take(0));
  queue.lose_worker(1);
  EXPECT_EQ(ids_of(queue.take(0, 9)), (std::vector<uint64_t>{3})) << "one at a time";
  queue.end(0, 3);
  EXPECT_EQ(ids_of(queue.take(0, 9)), (std::vector<uint64_t>{1}));
}

// A job as a seed has it: what is scheduled, run, thrown, killed and handed back, in which order.
// `Queue` is the real one, or one with a bug.
template <class Queue>
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        bound_(pick(2) == 0 ? std::nullopt : std::optional<int>(static_cast<int>(pick(3)))),
        queue_({.capacity = 1 + pick(20), .staleness_bound = bound_}),
        workers_(1 + pick(4)) {
    for (std::size_t w = 0; w < workers_.size(); ++w) queue_.join_worker(static_cast<int>(w));
  }

  /// What went wrong; nothing: all is as promised.
  std::optional<std::string> run() {
    for (int event = 0; event < 150 && wrong_.empty(); ++event) step();
    fails_ = false;  // who is gone stays so
    if (std::none_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.is_there; })) {
      come(0);
    }
    for (int event = 0; event < 2000 && wrong_.empty() && !is_over(); ++event) step();
    if (wrong_.empty() && !is_over()) wrong_ = "join() waits for ever";
    if (wrong_.empty()) check_end();
    if (wrong_.empty()) return std::nullopt;
    return wrong_;
  }

 private:
  struct Flight {
    uint64_t id = 0;
    bool is_step = false;
    std::vector<std::pair<int, int>> lives = {};  // of all workers, when it was taken
  };
  struct Worker {
    std::vector<Flight> flights = {};
    bool is_there = true;
    int life = 0;
    int ended = 0;  // steps
  };
  std::size_t pick(std::size_t below) { return random_() % below; }
  bool is_over() const { return !fails_ && queue_.is_idle() && !queue_.has_error(); }

  void step() {
    const std::size_t worker = pick(workers_.size());
    switch (pick(fails_ ? 9 : 4)) {
      case 0:
        return give(worker);
      case 1:
      case 2:
        return answer(worker, /*error=*/false);
      case 3:
        return ask();
      case 4:
        return answer(worker, /*error=*/true);
      case 5:
        return lose(worker);
      case 6:
        return hand_back(worker);
      case 7:
        return come(worker);
      default:
        return schedule();
    }
  }

  void schedule() {
    if (queue_.is_full() || queue_.has_error()) return;
    scheduled_.insert(++last_);
    const ClosurePtr closure = closure_of(last_);
    closure->is_step = pick(5) != 0;
    queue_.put(closure);
  }
  void give(std::size_t worker) {
    std::vector<Flight>& flights = workers_[worker].flights;
    // One message at a time, as the real one.
    if (!workers_[worker].is_there || !flights.empty()) return;
    const std::vector<ClosurePtr> taken = queue_.take(static_cast<int>(worker), 1 + pick(3));
    if (queue_.has_error() && !taken.empty()) wrong_ = "a function was begun after an error";
    for (const ClosurePtr& each : taken) flights.push_back({each->id, each->is_step, lives()});
  }
  // Which life of each worker it is, and how many steps it has ended.
  std::vector<std::pair<int, int>> lives() const {
    std::vector<std::pair<int, int>> out;
    for (const Worker& each : workers_) out.emplace_back(each.life, each.ended);
    return out;
  }
  // What others have ended while a step was under way, which it may not have seen.
  void check_staleness(std::size_t worker, const Flight& flight) {
    if (!bound_ || !flight.is_step) return;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const auto [life, ended] = flight.lives[w];
      if (w == worker || life != workers_[w].life) continue;
      if (workers_[w].ended - ended > 2 * *bound_ + 1) {
        wrong_ = str_cat("function ", flight.id, " misses ", workers_[w].ended - ended,
                         " steps of ", "one worker, with a bound of ", *bound_);
      }
    }
  }
  void answer(std::size_t worker, bool error) {
    std::vector<Flight>& flights = workers_[worker].flights;
    if (flights.empty()) return;
    const Flight flight = flights.front();
    const uint64_t id = flight.id;
    flights.erase(flights.begin());
    check_staleness(worker, flight);
    workers_[worker].ended += flight.is_step ? 1 : 0;
    const int at = static_cast<int>(worker);
    const bool had_error = queue_.has_error();
    const ClosurePtr ended = error ? queue_.fail(at, id, an_error("x")) : queue_.end(at, id);
    if (!ended || ended->id != id) wrong_ = str_cat("function ", id, " is not known to run");
    if (error && !had_error) ++errors_;
    ran_.insert(id);
    collect();
  }
  void hand_back(std::size_t worker) {
    std::vector<Flight>& flights = workers_[worker].flights;
    if (flights.empty()) return;
    queue_.hand_back(static_cast<int>(worker), flights.back().id);
    flights.pop_back();
    collect();
  }
  // Some of its functions have run by then, and nobody knows.
  void lose(std::size_t worker) {
    queue_.lose_worker(static_cast<int>(worker));
    workers_[worker].is_there = false;
    workers_[worker].flights.clear();
    collect();
  }
  void come(std::size_t worker) {
    if (std::exchange(workers_[worker].is_there, true)) return;
    ++workers_[worker].life;
    queue_.join_worker(static_cast<int>(worker));
  }
  // join() or done() of the program.
  void ask() {
    if (!queue_.is_error_ripe()) return;
    if (!queue_.take_error()) wrong_ = "there is no error to throw";
    for (const Worker& each : workers_) {
      if (!each.flights.empty()) wrong_ = "an error was thrown while functions run";
    }
    ++thrown_;
    collect();
  }
  void collect() {
    for (const CancelledClosure& each : queue_.take_cancelled()) {
      if (!cancelled_.insert(each.closure->id).second) wrong_ = "cancelled twice";
    }
  }
  void check_end() {
    collect();
    if (errors_ != thrown_)
      wrong_ = str_cat(errors_, " errors, of which ", thrown_, " were thrown");
    for (const uint64_t id : scheduled_) {
      if (ran_.count(id) + cancelled_.count(id) == 0) wrong_ = str_cat("function ", id, " is lost");
    }
  }

  std::mt19937_64 random_;
  const std::optional<int> bound_;  // of staleness
  Queue queue_;
  std::vector<Worker> workers_;
  std::set<uint64_t> scheduled_, ran_, cancelled_;
  uint64_t last_ = 0;
  int errors_ = 0, thrown_ = 0;
  bool fails_ = true;  // functions throw and workers die
  std::string wrong_;
};

constexpr uint64_t kSeeds = 5000;

TEST(ClosureQueueSimulation, EveryFunctionIsRunOrCancelled) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto wrong = Simulation<ClosureQueue>(seed).run();
    ASSERT_FALSE(wrong) << *wrong << " with seed " << seed;
  }
}

template <class Queue>
int seeds_that_fail() {
  int failed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) failed += Simulation<Queue>(seed).run() ? 1 : 0;
  return failed;
}

struct ForgetsLostWorkers : ClosureQueue {
  using ClosureQueue::ClosureQueue;
  void lose_worker(int /*worker*/) {}
};
struct BeginsAfterErrors : ClosureQueue {
  using ClosureQueue::ClosureQueue;
  // What was taken before the error, and is sent behind it.
  std::vector<ClosurePtr> held;
  std::vector<ClosurePtr> take(int worker, std::size_t most) {
    if (held.empty()) held = ClosureQueue::take(worker, most);
    return std::exchange(held, has_error() ? std::vector<ClosurePtr>{} : held);
  }
};
struct DropsAnErrorThatALaterOneFollows : ClosureQueue {
  using ClosureQueue::ClosureQueue;
  ClosurePtr fail(int worker, uint64_t id, const std::exception_ptr& error) {
    return has_error()     ? end(worker, id)
           : running() > 1 ? end(worker, id)
                           : ClosureQueue::fail(worker, id, error);
  }
};

struct WaitsForTheLost : ClosureQueue {
  using ClosureQueue::ClosureQueue;
  void lose_worker(int worker) {
    ClosureQueue::lose_worker(worker);
    join_worker(worker);
  }
};
struct HasNoBound : ClosureQueue {
  explicit HasNoBound(const Options& options) : ClosureQueue({.capacity = options.capacity}) {}
};

TEST(ClosureQueueSimulation, FindsBugs) {
  EXPECT_GT(seeds_that_fail<ForgetsLostWorkers>(), 0);
  EXPECT_GT(seeds_that_fail<BeginsAfterErrors>(), 0);
  EXPECT_GT(seeds_that_fail<DropsAnErrorThatALaterOneFollows>(), 0);
  EXPECT_GT(seeds_that_fail<WaitsForTheLost>(), 0);
  EXPECT_GT(seeds_that_fail<HasNoBound>(), 0);
}

}  // namespace
}  // namespace cohort::internal::coordinator
