// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/step_undo.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/runtime/step_recording.h"

namespace cohort::internal::variables {

namespace {
// The oldest value is the one to go back to.
template <class List>
bool has(const List& list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.first.is_same(t); });
}
}  // namespace

StepUndo::StepUndo() {
  runtime::note_draws_by([](StepUndo& step, const std::shared_ptr<runtime::DrawCounts>& counts,
                            int replica, uint64_t draw) { step.drew(counts, replica, draw); });
}

void StepUndo::drew(const std::shared_ptr<runtime::DrawCounts>& counts, int replica,
                    uint64_t draw) {
  for (Drawn& known : drawn_) {
    if (known.counts != counts || known.replica != replica) continue;
    if (draw != known.first + known.draws) known.first = draw, known.draws = 0;
    ++known.draws;
    return;
  }
  drawn_.push_back({counts, replica, draw, 1});
}

void StepUndo::keep(const Tensor& t) {
  // A recording writes nothing of the device's.
  if (runtime::StepRecording::current() != nullptr && !t.is_cpu()) return;
  if (t.scalar_type() == at::kDouble && t.numel() == 1 && t.is_cpu()) {
    if (!has(numbers_, t)) numbers_.emplace_back(t, *t.const_data_ptr<double>());
    return;
  }
  const at::NoGradGuard no_grad;
  if (!has(kept_, t)) kept_.emplace_back(t, t.clone());
}

void StepUndo::commit() {
  if (runtime::StepRecording::current() != nullptr) return;  // nothing is written yet
  kept_.clear();
  numbers_.clear();
  drawn_.clear();
}

void StepUndo::roll_back() {
  const at::NoGradGuard no_grad;
  for (const auto& [where, value] : kept_) where.copy_(value);
  for (const auto& [where, number] : numbers_) where.fill_(number);
  for (const Drawn& d : drawn_) d.counts->take_back(d.replica, d.first, d.draws);
  commit();
}

}  // namespace cohort::internal::variables
