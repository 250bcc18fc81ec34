// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/fork_locks.h"

#include <pthread.h>

#include <array>
#include <cstddef>

namespace cohort::internal::base {
namespace {

constexpr std::size_t kMostMutexes = 32;

// Itself held over fork, so that the child finds as many as were taken.
constinit Mutex g_list_mutex;
constinit std::array<Mutex*, kMostMutexes> g_mutexes COHORT_GUARDED_BY(g_list_mutex) = {};
constinit std::size_t g_count COHORT_GUARDED_BY(g_list_mutex) = 0;

// Not checked: which mutexes these are is known at run time only.
void take_all() COHORT_NO_THREAD_SAFETY_ANALYSIS {
  g_list_mutex.lock();
  for (std::size_t i = 0; i < g_count; ++i) g_mutexes[i]->lock();
}
void give_all_back() COHORT_NO_THREAD_SAFETY_ANALYSIS {
  for (std::size_t i = g_count; i-- > 0;) g_mutexes[i]->unlock();
  g_list_mutex.unlock();
}

}  // namespace

bool keep_free_over_fork(Mutex& mutex) {
  [[maybe_unused]] static const int registered =
      pthread_atfork(take_all, give_all_back, give_all_back);
  const MutexLock lock(g_list_mutex);
  if (g_count < kMostMutexes) g_mutexes[g_count++] = &mutex;
  return true;
}

}  // namespace cohort::internal::base
