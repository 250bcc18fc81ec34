// SPDX-License-Identifier: Apache-2.0
//
// How the memory of a lane comes from the server to the client: one message of proof, one answer
// with the descriptor.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cohort/rpc/internal/lane_memory.h"

namespace cohort::internal::rpc {

inline constexpr std::size_t kMostProofBytes = std::size_t{16} << 10;

using LaneTime = std::chrono::steady_clock::time_point;

/// The client's. Blocks: until then at most. Errors: Error where nobody of this user listens.
LaneSocket connect_lane(const std::string& name, LaneTime until);
/// A descriptor, for who asks to close. Blocks: until then at most. Errors: Error; it is
/// kResourceExhausted where the server hands out nothing.
int receive_memory(const LaneSocket& socket, std::string_view proof, LaneTime until);

/// The server's: listens under a name that nobody guesses, and does not block.
LaneSocket listen_for_lanes(std::string* name);
/// False: the client is gone.
bool send_memory(const LaneSocket& socket, int descriptor);

}  // namespace cohort::internal::rpc
