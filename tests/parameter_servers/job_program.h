// SPDX-License-Identifier: Apache-2.0
//
// What the programs of jobs with parameter servers have in common.
#pragma once

#include <cstdio>
#include <exception>
#include <memory>

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

}  // namespace cohort::testing
