// SPDX-License-Identifier: Apache-2.0
//
// Ranks that a launcher has started on several hosts tell each other where they are.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cohort::internal::cluster {

struct RankPlace {
  int rank = 0;
  int size = 1;
  std::string meeting = {};  ///< "host:port", where rank 0 keeps the list meanwhile.
  int port = 0;              ///< Where this rank will listen.
  std::chrono::seconds timeout{300};
};

/// The addresses of all ranks. This one's is that from which it reaches the meeting place.
/// Blocks: until all have come, `timeout` at most.
/// Errors: DeadlineExceeded that names the meeting place; InvalidArgument for one beyond loopback
///         that is neither encrypted nor allowed.
std::vector<std::string> addresses_of_ranks(const RankPlace& place);

}  // namespace cohort::internal::cluster
