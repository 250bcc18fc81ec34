// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator as those that save and restore together.
#pragma once

#include <memory>

#include "cohort/checkpoint/saving_group.h"

namespace cohort::internal::collectives {

class Communicator;

/// Null for one rank, or no communicator. What they do together is a turn of its.
std::shared_ptr<checkpoint::SavingGroup> saving_group_of(
    std::shared_ptr<Communicator> communicator);

}  // namespace cohort::internal::collectives
