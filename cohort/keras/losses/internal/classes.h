// SPDX-License-Identifier: Apache-2.0
//
// The classes of losses, for the table that configs are read by.
#pragma once

namespace cohort::keras::internal {

class ClassTable;
void add_crossentropies(ClassTable& table);
void add_regression_losses(ClassTable& table);
void add_sequence_losses(ClassTable& table);

}  // namespace cohort::keras::internal
