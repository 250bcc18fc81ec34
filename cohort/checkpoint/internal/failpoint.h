// SPDX-License-Identifier: Apache-2.0
//
// Named places where a test ends the process, to see what is left behind.
#pragma once

#include <atomic>

namespace cohort::internal {

using FailpointHook = void (*)(const char* place);

/// Null in every program but such a test.
inline std::atomic<FailpointHook> g_failpoint_hook{nullptr};

inline void failpoint(const char* place) {
  if (const FailpointHook hook = g_failpoint_hook.load(std::memory_order_relaxed)) hook(place);
}

}  // namespace cohort::internal
