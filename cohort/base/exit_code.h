// SPDX-License-Identifier: Apache-2.0
//
// With which exit status a program ends that an error has ended, so that its launcher knows whether
// another start would help:
//
//   int ended_by(const std::exception& error) {
//     std::fprintf(stderr, "%s\n", error.what());
//     return cohort::exit_code_of(error);  // what main returns
//   }
#pragma once

#include <exception>
#include <string_view>

#include "cohort/base/error.h"

namespace cohort {

/// 134, as of an exception that nobody catches, where another start may help: Unavailable,
/// DeadlineExceeded, an error of code kAborted, what tells a process that the job has given it up,
/// and the DataLoss of parameter servers that are gone with all copies. 1 for all else, which is as
/// wrong at the next start. Kubeflow's restart policy ExitCode, and cohortrun's exit-code, start
/// again what ends with at least 128.
inline int exit_code_of(const std::exception& error) noexcept {
  constexpr int kStartAgain = 134;
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) return 1;
  switch (known->code()) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kAborted:
      return kStartAgain;
    case ErrorCode::kFailedPrecondition: {
      // As leases and stores tell it (collectives/liveness.cc, cluster/store).
      const std::string_view text = known->what();
      const bool is_of_job = text.starts_with("[liveness]") || text.starts_with("[store]") ||
                             text.starts_with("[communicator]");
      return is_of_job && text.find(" is too late: ") != std::string_view::npos ? kStartAgain : 1;
    }
    case ErrorCode::kDataLoss:  // of parameter servers that are gone with all copies
      return std::string_view(known->what()).find(" are lost, which had all copies") !=
                     std::string_view::npos
                 ? kStartAgain
                 : 1;
    default:
      return 1;
  }
}

}  // namespace cohort
