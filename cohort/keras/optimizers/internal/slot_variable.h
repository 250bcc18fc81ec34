// SPDX-License-Identifier: Apache-2.0
//
// A slot of a fused update as a variable, so that checkpoints and programs can read and set it.
#pragma once

#include <memory>
#include <string>

#include "cohort/variables/fused_update.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

/// Slot `slot` of variable `variable` of `fused`. Its one value stands for all copies: read and
/// assigned cross-replica, where assign writes every copy.
Variable slot_variable(std::shared_ptr<cohort::internal::FusedUpdate> fused, std::size_t variable,
                       int slot, std::string name);

}  // namespace cohort::keras::internal
