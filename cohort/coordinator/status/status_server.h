// SPDX-License-Identifier: Apache-2.0
//
// What serves a coordinator's state to those who ask: "coordinator.status" over gRPC, for members
// of the job, and the page where a program wants one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/coordinator/status/status_board.h"
#include "cohort/coordinator/status/status_page.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {

/// Its answer is StatusBoard::json().
inline constexpr const char* kStatusMethod = "coordinator.status";

/// Threads: immutable.
class StatusServer {
 public:
  struct Options {
    std::string address = {};  ///< The coordinator's of the cluster; empty: none.
    rpc::RpcSecurity security = {};
    std::optional<StatusPage::Options> page = {};
  };
  /// An address where it cannot listen is a warning, for a job does not need it. Errors: as
  /// StatusPage.
  StatusServer(const Options& options, const std::shared_ptr<StatusBoard>& board);

 private:
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<StatusPage> page_;
};

}  // namespace cohort::internal::coordinator
