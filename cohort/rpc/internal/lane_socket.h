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

/// The client's. Blocks: for a second at most. Errors: Error where nobody of this user listens.
LaneSocket connect_lane(const std::string& name);
/// A descriptor, for who asks to close. Blocks: for a second at most. Errors: Error,
/// Unauthenticated where the server hands out nothing.
int receive_memory(const LaneSocket& socket, std::string_view proof);

/// The server's: listens under a name that nobody guesses, and does not block.
LaneSocket listen_for_lanes(std::string* name);
/// False: the client is gone.
bool send_memory(const LaneSocket& socket, int descriptor);

}  // namespace cohort::internal::rpc
