// SPDX-License-Identifier: Apache-2.0
//
// What this process may use of the machine.
#pragma once

namespace cohort::internal {

/// The least of CPU affinity, cgroup quota and physical cores; at least 1. Read once.
int usable_cores();

}  // namespace cohort::internal
