// SPDX-License-Identifier: Apache-2.0
//
// fork copies a mutex as it is: one that another thread holds at that moment nobody gives back in
// the child, which then waits for ever. Mutexes of the process, which everything may pass (counters
// of names, settings), are kept free:
//
//   constinit Mutex g_names;
//   [[maybe_unused]] const bool names_kept = keep_free_over_fork(g_names);
//
// What belongs to an object has a ProcessMark instead (process_mark.h).
#pragma once

#include "cohort/base/mutex.h"

namespace cohort::internal::base {

/// From here on fork waits for whoever holds the mutex, and the child finds it free. The mutex
/// lives as long as the process, is held shortly, and never while another such one is taken.
/// Returns true. Threads: any.
bool keep_free_over_fork(Mutex& mutex);

}  // namespace cohort::internal::base
