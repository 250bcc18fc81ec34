// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/step_undo.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace cohort::internal::variables {

namespace {
// The oldest value is the one to go back to.
template <class List>
bool has(const List& list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.first.is_same(t); });
}
}  // namespace

void StepUndo::keep(const Tensor& t) {
  if (t.scalar_type() == at::kDouble && t.numel() == 1 && t.is_cpu()) {
    if (!has(numbers_, t)) numbers_.emplace_back(t, *t.const_data_ptr<double>());
    return;
  }
  const at::NoGradGuard no_grad;
  if (!has(kept_, t)) kept_.emplace_back(t, t.clone());
}

void StepUndo::commit() {
  kept_.clear();
  numbers_.clear();
}

void StepUndo::roll_back() {
  const at::NoGradGuard no_grad;
  for (const auto& [where, value] : kept_) where.copy_(value);
  for (const auto& [where, number] : numbers_) where.fill_(number);
  commit();
}

}  // namespace cohort::internal::variables
