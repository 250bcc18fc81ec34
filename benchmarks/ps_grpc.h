// SPDX-License-Identifier: Apache-2.0
//
// A plain store of 4 MB over bare gRPC: bytes that arrive are copied to where they stay, and sent
// from there without a copy, with gRPC's settings as they come.
#pragma once

#include "ways.h"

namespace cohort::bench {

/// A server of its own process, whose program is started as "--serve-grpc".
Way grpc_way(bool is_push);

int serve_grpc();

}  // namespace cohort::bench
