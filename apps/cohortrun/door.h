// SPDX-License-Identifier: Apache-2.0
//
// Where the cohortruns of a job's other nodes come in, and come back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "channel.h"
#include "network.h"
#include "node.h"

namespace cohortrun {

/// What a node says of itself when it comes.
struct Hello {
  std::string job = {};  ///< --rdzv-id
  int node_rank = -1;    ///< -1: the next one that is free
  int slots = 1;
  int nodes = 0;  ///< --nnodes
};
std::string to_json(const Hello& hello);

class Door {
 public:
  /// Owns the listening socket.
  Door(int listening, std::string job, int nodes, cohort::internal::rpc::TlsContext tls = {});
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  void add_polled(std::vector<pollfd>* polled) const;
  /// Lets in who has come; nodes[0] is this one.
  void step(const std::vector<RemoteNode*>& nodes);

 private:
  struct Guest {
    Channel channel;
    std::string from;
    std::optional<Message> greeting = {};
  };
  /// Why it cannot come in (yet); "" if it has.
  std::string let_in(Guest& guest, const std::string& text,
                     const std::vector<RemoteNode*>& nodes) const;

  const int listening_;
  const std::string job_;
  const int nodes_;
  const cohort::internal::rpc::TlsContext tls_;
  std::vector<Guest> guests_;
};

}  // namespace cohortrun
