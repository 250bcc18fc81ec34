// SPDX-License-Identifier: Apache-2.0
//
// The cohortrun of a node that another one leads.
#pragma once

#include "door.h"
#include "network.h"
#include "node.h"

namespace cohortrun {

/// Does what the head at the other end of the channel says, until it says that the job is over.
/// Returns the exit code that it says; 129 (hung up) if it is gone: the tasks are ended then.
/// `passes_output_on`: to the head. Blocks: until every task has ended.
int follow_head(Channel channel, const LocalSettings& settings, int slots, bool passes_output_on,
                Signals& signals);

/// Connects to the head, for so long at most. Empty: a signal came, or *why says what is wrong.
std::optional<Channel> find_head(const Endpoint& at, const cohort::internal::rpc::TlsContext& tls,
                                 std::chrono::seconds limit, Signals& signals, int* signal,
                                 std::string* own_address);

/// As the agent that ssh started: reads from the head what to run.
/// Errors: std::runtime_error if what it reads is not that.
int follow_over_ssh(Signals& signals);

/// What follow_over_ssh() reads.
std::string job_to_json(const LocalSettings& settings);

}  // namespace cohortrun
