// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/write_guard.h"

#include <utility>

#include "cohort/base/mutex.h"

namespace cohort::internal {
namespace {

struct WriteGuards {
  Mutex mutex;
  std::list<std::function<void()>> checks COHORT_GUARDED_BY(mutex);
};

WriteGuards& write_guards() {
  static auto* guards = new WriteGuards;  // outlives what is destroyed at the end of the process
  return *guards;
}

}  // namespace

WriteGuard::WriteGuard(std::function<void()> check) {
  WriteGuards& guards = write_guards();
  const MutexLock lock(guards.mutex);
  place_ = guards.checks.insert(guards.checks.end(), std::move(check));
}

WriteGuard::~WriteGuard() {
  WriteGuards& guards = write_guards();
  const MutexLock lock(guards.mutex);
  guards.checks.erase(place_);
}

void check_may_write() {
  WriteGuards& guards = write_guards();
  const MutexLock lock(guards.mutex);
  for (const auto& check : guards.checks) check();
}

}  // namespace cohort::internal
