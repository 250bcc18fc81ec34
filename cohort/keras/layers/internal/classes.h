// SPDX-License-Identifier: Apache-2.0
//
// The models that are layers of others, for the table that configs are read by.
#pragma once

namespace cohort::keras::internal {

class ClassTable;
/// Defined where the models are, on a floor above.
void add_models(ClassTable& table);

}  // namespace cohort::keras::internal
