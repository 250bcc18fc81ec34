// SPDX-License-Identifier: Apache-2.0
//
// The classes of optimizers, for the table that configs are read by.
#pragma once

namespace cohort::keras::internal {

class ClassTable;
void add_loss_scale_optimizer(ClassTable& table);
void add_whole_variable_optimizers(ClassTable& table);

}  // namespace cohort::keras::internal
