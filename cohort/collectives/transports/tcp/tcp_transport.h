// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes (or, in tests, threads) that reach each other over TCP.
//
//   Communicator communicator(connect_over_tcp({.rank = 0, .addresses = {"a:2222", "b:2222"}}));
//
// Messages are moved by the thread that waits, without a thread of their own; so a large message
// goes on only while its sender is in start(), go_on(), finish(), commit() or renew(). Failures
// travel at once (alarms.h): a process that ends is known to all others by then, whatever they do.
// One that is stopped, or cut off without a word, is met by deadlines alone.
//
// Commits: rank 0 decides. If it dies meanwhile, the others settle it among themselves; if a
// network parts it from the others in the very moment, it may have passed and they not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/collectives/transport.h"
#include "cohort/collectives/transports/tcp/mesh.h"

namespace cohort::internal::collectives {

/// Blocks: until all ranks have come. Errors: as meet_over_tcp().
std::unique_ptr<Transport> connect_over_tcp(MeshOptions options);

}  // namespace cohort::internal::collectives
