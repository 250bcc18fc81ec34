// SPDX-License-Identifier: Apache-2.0
//
// The limit of replicas that share the cores with others: threads that only compute and meet.
#pragma once

#include <memory>

#include "contender.h"

namespace cohort::bench {

/// A thread per replica, which computes for as long as the case's products take at 30 GFLOP/s, then
/// waits for the others: no memory, no library. What the scheduler does to these it does to all who
/// train in step. Its loss is nobody's.
std::unique_ptr<Contender> make_lockstep_contender();

}  // namespace cohort::bench
