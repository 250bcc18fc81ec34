// SPDX-License-Identifier: Apache-2.0
//
// What is found where a process of a job would run, and what is wrong with it.
#pragma once

#include <chrono>

namespace cohort_tool {

struct DoctorOptions {
  std::chrono::milliseconds connect_timeout{2000};  ///< For each address.
};

/// Writes to standard output. The exit code: 1 if something is wrong.
int doctor(const DoctorOptions& options);

}  // namespace cohort_tool
