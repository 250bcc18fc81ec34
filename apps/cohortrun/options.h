// SPDX-License-Identifier: Apache-2.0
//
// The flags of cohortrun: torchrun's, and those of a cluster's jobs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator.h"
#include "job.h"
#include "node.h"

namespace cohortrun {

struct Host {
  std::string name = {};  ///< With its user: "me@host".
  int slots = 1;
  /// Without its user.
  std::string address() const { return name.substr(name.find('@') + 1); }
};

struct Options {
  TaskCounts tasks = {};
  int nproc_per_node = 0;  ///< 0: not said.
  int nodes = 1;
  int node_rank = -1;  ///< -1: in the order of their coming.
  std::string endpoint = {};
  std::string job = "none";  ///< --rdzv-id
  std::vector<Host> hosts = {};
  std::vector<std::string> ssh = {};
  std::string remote_program = {};
  bool is_agent = false;
  LocalSettings local = {};
  JobSettings settings = {};
  std::string interface = {};
  std::string local_addr = {};
};

/// *exit_code: where there is nothing to run (help, a wrong flag). Errors: std::runtime_error for
/// what cannot go together.
std::optional<Options> read_options(int argc, char** argv, int* exit_code);

// Errors, of all: std::runtime_error that says what was expected.

/// "2" or "2:2". A range is refused: workers cannot come and go.
int nodes_of(const std::string& text);
/// A number, "auto" or "cpu" (as many as there are cores).
int processes_of(const std::string& text);
/// A hostfile: a host in each line, "name", "name:4" or "name slots=4"; # begins a comment.
std::vector<Host> hosts_of(const std::string& text);

}  // namespace cohortrun
