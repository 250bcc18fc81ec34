// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/write_guard.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::base {

struct WriteGuard::Check {
  const ProcessMark process = {};
  Mutex mutex;
  std::function<void()> check COHORT_GUARDED_BY(mutex);  // null: its guard has gone
};

namespace {

using Checks = std::vector<std::shared_ptr<WriteGuard::Check>>;

constinit Mutex g_guards_mutex;
[[maybe_unused]] const bool guards_kept_free = keep_free_over_fork(g_guards_mutex);

// Never destroyed: files are written while the process exits.
Checks& write_checks() COHORT_REQUIRES(g_guards_mutex) {
  static auto& all = *new Checks;
  return all;
}
std::string& why_not() COHORT_REQUIRES(g_guards_mutex) {
  static auto& text = *new std::string;
  return text;
}

}  // namespace

WriteGuard::WriteGuard(std::function<void()> check) : check_(std::make_shared<Check>()) {
  {
    const MutexLock lock(check_->mutex);
    check_->check = std::move(check);
  }
  const MutexLock lock(g_guards_mutex);
  write_checks().push_back(check_);
}

WriteGuard::~WriteGuard() {
  {
    const MutexLock lock(g_guards_mutex);
    std::erase(write_checks(), check_);
  }
  // In a child a thread of the parent's may have it for ever.
  if (!check_->process.is_ours()) return;
  const MutexLock lock(check_->mutex);
  check_->check = nullptr;
}

void forbid_writes(const std::string& why) {
  const MutexLock lock(g_guards_mutex);
  why_not() = why;
}

void allow_writes() {
  const MutexLock lock(g_guards_mutex);
  why_not().clear();
}

void check_may_write() {
  Checks checks;
  {
    const MutexLock lock(g_guards_mutex);
    if (!why_not().empty()) throw FailedPrecondition(why_not());
    checks = write_checks();
  }
  // Without the mutex of all: a check may ask another process, and fork must not wait for that.
  for (const auto& each : checks) {
    if (!each->process.is_ours()) continue;
    const MutexLock lock(each->mutex);
    if (each->check) each->check();
  }
}

}  // namespace cohort::internal::base
