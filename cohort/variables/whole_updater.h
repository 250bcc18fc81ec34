// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at variables as a whole (whole_step.h), where the variables and their slots are
// not in this process: what Lamb, Adafactor and Muon give them to.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/variables/whole_step.h"

namespace cohort::internal::variables {

/// Of a list of variables, which the store's make_whole_updater() was given. Threads: as Updater.
class WholeUpdater {
 public:
  WholeUpdater() = default;
  virtual ~WholeUpdater() = default;
  WholeUpdater(const WholeUpdater&) = delete;
  WholeUpdater& operator=(const WholeUpdater&) = delete;

  struct Part {
    std::size_t variable = 0;
    WholeRule rule = {};
    double weight_decay = 0;
    WholeGradient by = {};
  };
  /// Of each variable at most one. Blocks: until all are applied. Errors: InvalidArgument for a
  /// gradient of another shape; what the store's keepers say.
  virtual void apply(std::vector<Part> parts) = 0;
  /// First slots of these variables, asked for at once.
  virtual std::vector<Tensor> first_slots(const std::vector<std::size_t>& variables) = 0;
  /// A slot in its form. Of one that each part of the variable has (SlotForm::kShared), the first
  /// part's.
  virtual Tensor slot(std::size_t variable, std::size_t slot) = 0;
  virtual void set_slot(std::size_t variable, std::size_t slot, const Tensor& value) = 0;
};

}  // namespace cohort::internal::variables
