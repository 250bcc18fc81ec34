// SPDX-License-Identifier: Apache-2.0
//
// Says where all threads of this process are when nothing has happened for too long:
//
//   Watchdog watchdog(/*seconds=*/60);
//   watchdog.reset();   // something has happened
#pragma once

#include <condition_variable>
#include <thread>

#include "cohort/base/mutex.h"

namespace cohort::internal::coordinator {

/// Writes the stacks of all threads to standard error. Blocks: until they are written; a thread
/// that does not answer within a second is left out.
void dump_all_stacks();

/// Threads: thread-safe.
class Watchdog {
 public:
  /// Of no seconds, or fewer: there is none.
  explicit Watchdog(double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  void reset();

 private:
  void watch();

  const double seconds_;
  base::Mutex mutex_;
  std::condition_variable_any changed_;
  bool ends_ COHORT_GUARDED_BY(mutex_) = false;
  bool happened_ COHORT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::internal::coordinator
