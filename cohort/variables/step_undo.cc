// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/step_undo.h"

#include <ATen/core/grad_mode.h>

namespace cohort::internal {

namespace {
thread_local StepUndo* t_current = nullptr;
}  // namespace

void StepUndo::keep(const Tensor& t) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : kept_) {
    if (entry.first.is_same(t)) return;  // the oldest value is the one to go back to
  }
  kept_.emplace_back(t, t.clone());
}

void StepUndo::roll_back() {
  const at::NoGradGuard no_grad;
  for (auto entry = kept_.rbegin(); entry != kept_.rend(); ++entry) {
    entry->first.copy_(entry->second);
  }
  kept_.clear();
}

StepUndo* StepUndo::current() { return t_current; }

StepUndoScope::StepUndoScope(StepUndo* undo) : before_(std::exchange(t_current, undo)) {}
StepUndoScope::~StepUndoScope() { t_current = before_; }

}  // namespace cohort::internal
