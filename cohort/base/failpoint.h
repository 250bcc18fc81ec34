// SPDX-License-Identifier: Apache-2.0
//
// Named places where a test makes the process die, stop or fail, and system calls that fail because
// a test says so:
//
//   failpoint("update.before_commit");
//
//   COHORT_FAILPOINTS=update.before_commit=kill#3@1 ./program
#pragma once

#include <atomic>
#include <string>

namespace cohort::internal::base {

using FailpointHook = void (*)(const char* place);
/// The error number that this call is to fail with; 0: none.
using FaultHook = int (*)(const char* call, const std::string& path);

/// What COHORT_FAILPOINTS says of `place`: it holds, with commas, PLACE=ACTION[#N][@RANK]: at the
/// N-th time only, 1 if it is left out, and only in the process whose variable RANK it is. kill and
/// stop raise SIGKILL and SIGSTOP, throw throws Internal. Errors: what the variable asks for;
/// InvalidArgument where it cannot be read. Threads: any.
void obey_failpoints_variable(const char* place);

/// Null in every program but such a test, or one that has COHORT_FAILPOINTS.
extern std::atomic<FailpointHook> g_failpoint_hook;
inline std::atomic<FaultHook> g_fault_hook{nullptr};

/// Cost: one load.
inline void failpoint(const char* place) {
  if (const FailpointHook hook = g_failpoint_hook.load(std::memory_order_relaxed)) hook(place);
}

inline int fault(const char* call, const std::string& path) {
  const FaultHook hook = g_fault_hook.load(std::memory_order_relaxed);
  return hook == nullptr ? 0 : hook(call, path);
}

}  // namespace cohort::internal::base
