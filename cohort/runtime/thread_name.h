// SPDX-License-Identifier: Apache-2.0
//
// Names that top -H, gdb and perf show.
#pragma once

#include <pthread.h>

#include <string>

namespace cohort::internal::runtime {

/// Names the calling thread; the kernel keeps 15 characters.
inline void set_thread_name(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace cohort::internal::runtime
