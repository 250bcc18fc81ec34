// SPDX-License-Identifier: Apache-2.0
//
// A test that waits for other threads must not be able to hang in silence:
//
//   run_with_deadline(std::chrono::seconds(20), [&] { group.run(body); });
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "cohort/base/mutex.h"

namespace cohort::testing {

/// Runs fn on the calling thread. If it has not returned within `limit`, a watching thread writes
/// where the call stands to standard error and aborts the process: what hangs cannot be unwound.
/// Errors: what fn throws. Threads: any number of calls at the same time, nested ones too.
template <class F>
decltype(auto) run_with_deadline(std::chrono::seconds limit, F&& fn,
                                 const char* file = __builtin_FILE(),  // clang-tidy 14 knows no
                                 int line = __builtin_LINE()) {        // std::source_location
  struct Watch {
    Watch(std::chrono::seconds limit, const char* file, int line)
        : thread([this, limit, file, line] {
            const internal::base::MutexLock lock(mutex);
            if (over.wait_for(mutex, limit, [this]() COHORT_REQUIRES(mutex) { return done; })) {
              return;
            }
            std::fprintf(stderr, "%s:%d: not finished after %lld s\n", file, line,
                         static_cast<long long>(limit.count()));
            std::abort();
          }) {}
    ~Watch() {
      {
        const internal::base::MutexLock lock(mutex);
        done = true;
      }
      over.notify_one();
      thread.join();
    }
    internal::base::Mutex mutex;
    std::condition_variable_any over;
    bool done COHORT_GUARDED_BY(mutex) = false;
    std::thread thread;
  };
  Watch watch(limit, file, line);
  return std::forward<F>(fn)();
}

}  // namespace cohort::testing
