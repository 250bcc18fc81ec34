// SPDX-License-Identifier: Apache-2.0
//
// Where LibTorch's engine runs the nodes of devices that have threads of their own.
#pragma once

#include <c10/core/AutogradState.h>

#include "cohort/runtime/device_library.h"

namespace cohort::internal::autograd {

/// While it lives, backward passes that this thread starts run their nodes on it, whatever device
/// they are of. LibTorch has one thread for each device, on which a node would find neither replica
/// nor lease nor open slots, and on which replicas of one device would wait for each other.
/// Threads: bound to its thread. Cost: a thread-local flag.
class [[nodiscard]] OnCallingThread {
 public:
  OnCallingThread() : before_(state().get_multithreading_enabled()) {
    runtime::open_device_libraries();
    state().set_multithreading_enabled(false);
  }
  ~OnCallingThread() { state().set_multithreading_enabled(before_); }
  OnCallingThread(const OnCallingThread&) = delete;
  OnCallingThread& operator=(const OnCallingThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }

  const bool before_;
};

}  // namespace cohort::internal::autograd
