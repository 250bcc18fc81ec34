// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator knows of its job at this moment, for people who look: `cohort status` and the
// page for browsers.
//
//   StatusBoard board;
//   board.add_task("worker 0", "127.0.0.1:4711");
//   board.found("worker 0", /*incarnation=*/17);
//   board.ended("worker 0", {.done = 12});
//   std::string text = board.json();
//
// Functions are counted by messages, not one by one, and what waits is counted when somebody asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/status/task_report.h"

namespace cohort::internal::coordinator {

/// Threads: thread-safe.
class StatusBoard {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  enum class State {
    kAwaited,  ///< Has not been there yet.
    kAlive,
    kLost,  ///< Does not answer; it may come back.
    kGone,  ///< Is not waited for any more.
  };
  /// What the queue of functions is like.
  struct Queue {
    uint64_t scheduled = 0;
    uint64_t waiting = 0;
    std::map<std::string, uint64_t> running = {};  ///< By task.
  };
  /// Functions that have come back from a worker.
  struct Ended {
    uint64_t done = 0;
    uint64_t failed = 0;
    uint64_t again = 0;  ///< Are to be run once more.
  };
  static constexpr std::size_t kKeptErrors = 16;
  static constexpr std::size_t kMostErrorBytes = 1000;

  void add_task(const std::string& name, const std::string& address);
  /// It has answered to a greeting. Another incarnation: it was started anew.
  void found(const std::string& name, uint64_t incarnation, Time now = Clock::now());
  /// It has answered to a ping. Two answers bring back who was lost.
  void heard(const std::string& name, const TaskReport& report, Time now = Clock::now());
  /// kLost or kGone. What was lost before is not an error again.
  void missed(const std::string& name, State state, const std::string& what,
              Time now = Clock::now());
  void ended(const std::string& name, const Ended& count, Time now = Clock::now());
  /// The last kKeptErrors are kept. `name`: of a task, or "coordinator".
  void note_error(const std::string& name, const std::string& what, Time now = Clock::now());
  void set_replicas(int replicas);
  /// Who knows the queue; an empty one ends it, and waits until it is not called any more. It is
  /// called on the threads of those who ask, and holds nothing of the board's meanwhile.
  void set_queue(std::function<Queue()> queue);

  /// All of it: docs/parameter_servers.md says what the fields are. Rates are of the last seconds.
  std::string json(Time now = Clock::now()) const;

 private:
  struct Sample {
    Time at = {};
    uint64_t first = 0;
    uint64_t second = 0;
  };
  // Counts that grow, of the last seconds.
  class Rates {
   public:
    void add(Time now, uint64_t first, uint64_t second);
    void clear() { samples_.clear(); }
    /// Each second. 0 where nobody has counted lately.
    std::pair<double, double> at(Time now) const;

   private:
    std::deque<Sample> samples_;
  };
  struct Task {
    std::string name = {};
    std::string address = {};
    State state = State::kAwaited;
    uint64_t incarnation = 0;
    uint64_t starts = 0;
    int heard_since_lost = 0;
    Time alive_since = {};
    Time heard = {};
    uint64_t done = 0;
    TaskReport report = {};
    Rates rows = {};
  };
  struct Note {
    Time at = {};
    std::chrono::system_clock::time_point clock = {};
    std::string name = {};
    std::string text = {};
  };
  Task* find(const std::string& name) COHORT_REQUIRES(mutex_);
  void keep(const std::string& name, const std::string& what, Time now) COHORT_REQUIRES(mutex_);
  struct Writer;
  friend struct Writer;

  mutable base::Mutex queue_mutex_;  // is held while the queue is asked
  std::function<Queue()> queue_ COHORT_GUARDED_BY(queue_mutex_);
  mutable base::Mutex mutex_;
  const Time begun_ = Clock::now();
  int replicas_ COHORT_GUARDED_BY(mutex_) = 1;
  std::vector<Task> tasks_ COHORT_GUARDED_BY(mutex_);
  Ended ended_ COHORT_GUARDED_BY(mutex_);
  Rates rates_ COHORT_GUARDED_BY(mutex_);              // done and failed
  std::deque<Note> errors_ COHORT_GUARDED_BY(mutex_);  // the last one first
};

}  // namespace cohort::internal::coordinator
