// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job meet: each listens at its own address and connects to those of all lower
// ranks, until every pair has its two connections or the deadline has passed.
#pragma once

#include <string>
#include <vector>

#include "cohort/collectives/transports/tcp/socket.h"

namespace cohort::internal::collectives {

struct MeshOptions {
  int rank = 0;
  std::vector<std::string> addresses = {};  ///< "host:port" of each rank.
  std::vector<std::string> tasks = {};      ///< "worker 0" of each, for errors; may be empty.
  /// What all ranks have to have alike, in words; compared, and named where it differs.
  std::string agreement = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Encrypts all that travels between ranks, and lets in only who is proved to belong to the job.
  rpc::TlsContext tls = {};
  /// Addresses beyond loopback are refused without it or TLS: whoever reaches them could take part,
  /// and read all that travels.
  bool allow_insecure = false;
  /// Whether messages between ranks of one machine go through memory that they share.
  bool shared_memory = true;
  /// Whether messages go over MPI, whose processes the ranks are; see transports/mpi.
  bool mpi = false;
  std::string machine = {};  ///< Plays another machine; for tests.
  Socket listener = {};      ///< Listens at this rank's address already; for tests.
};

struct MeshLink {
  std::string address = {};
  std::string task = {};
  Socket stream = {};
  Socket line = {};
};

/// One link for each rank; of this one without connections.
/// Errors: InvalidArgument for addresses that are none, or beyond loopback; Error kAlreadyExists
///         where another program listens at this rank's; FailedPrecondition on both sides, naming
///         both, for another agreement, number of ranks or rank; Unavailable if a rank that had
///         come went away; Unauthenticated that names the rank which this one has called
///         and does not believe, or is not believed by; DeadlineExceeded that names who has not
///         come, and why not.
std::vector<MeshLink> meet_over_tcp(MeshOptions options);

}  // namespace cohort::internal::collectives
