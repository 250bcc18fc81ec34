// SPDX-License-Identifier: Apache-2.0
//
// What the programs of jobs with parameter servers have in common.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/cluster/environment.h"
#include "cohort/coordinator/server.h"
#include "tests/test_program.h"

namespace cohort::testing {

/// Does the task that TF_CONFIG says; of the chief, whom `lead` is called with. Returns what the
/// program returns.
template <class Lead>
int run_job(const Lead& lead) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  try {
    if (!run_task(*resolver)) lead(resolver);
    return 0;
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
}

/// Says what `body` throws, and when: the job's end takes a while. Returns how long it has taken.
template <class Body>
double timed(const Body& body) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const Error& e) {
    std::printf("thrown %s: %s\n", error_code_name(e.code()), e.what());
    std::fflush(stdout);
    throw;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace cohort::testing
