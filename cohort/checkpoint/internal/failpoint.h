// SPDX-License-Identifier: Apache-2.0
//
// Named places where a test ends the process, to see what is left behind, and system calls that
// fail because a test says so.
#pragma once

#include <atomic>
#include <string>

namespace cohort::internal {

using FailpointHook = void (*)(const char* place);
/// The error number that this call is to fail with; 0: none.
using FaultHook = int (*)(const char* call, const std::string& path);

/// Null in every program but such a test.
inline std::atomic<FailpointHook> g_failpoint_hook{nullptr};
inline std::atomic<FaultHook> g_fault_hook{nullptr};

inline void failpoint(const char* place) {
  if (const FailpointHook hook = g_failpoint_hook.load(std::memory_order_relaxed)) hook(place);
}

inline int fault(const char* call, const std::string& path) {
  const FaultHook hook = g_fault_hook.load(std::memory_order_relaxed);
  return hook == nullptr ? 0 : hook(call, path);
}

}  // namespace cohort::internal
