// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/process_mark.h"

#include <pthread.h>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::base {

constinit std::atomic<uint32_t> forks_before_us{0};

ProcessMark::ProcessMark() {
  [[maybe_unused]] static const int registered = pthread_atfork(
      nullptr, nullptr, [] { forks_before_us.fetch_add(1, std::memory_order_relaxed); });
  made_at_ = forks_before_us.load(std::memory_order_relaxed);
}

void ProcessMark::fail(const char* operation, const char* what) {
  throw FailedPrecondition(str_cat("[", operation, "] expected ", what,
                                   " of this process, got one that was made before fork, whose "
                                   "threads and files are the parent's; make it in the child"));
}

}  // namespace cohort::internal::base
