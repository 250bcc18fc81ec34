// SPDX-License-Identifier: Apache-2.0
//
// What checkpoints see of optimizers: slots go by the path of their variable.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort::keras {

using cohort::internal::variables::store_of;
using cohort::internal::variables::tracked_variable;

// Each process would overwrite what the others keep.
void OptimizerBase::check_remote() const {
  if (store_of("[optimizer.build] ", trained_.front()).aggregates_pushes(trained_.front())) {
    const char* other = nullptr;
    if (options_.use_ema) other = "use_ema";
    if (options_.gradient_accumulation_steps > 1) other = "gradient_accumulation_steps";
    if (!constrained_.empty()) other = "constraints of variables";
    if (other != nullptr) {
      throw Unimplemented(
          str_cat("[", name_, "] expected no ", other,
                  " with sync_replicas, got it: a worker does not know whether its gradients were "
                  "an update of the servers; leave it out, or use MultiWorkerMirroredStrategy"));
    }
  }
  if (!is_remote_ || !options_.ema_overwrite_frequency) return;
  throw Unimplemented(str_cat(
      "[", name_, "] expected no ema_overwrite_frequency for variables of parameter servers, got ",
      *options_.ema_overwrite_frequency,
      ": a worker would overwrite what others have just pushed; leave it out (fit ends with the "
      "averages in the variables), or use MultiWorkerMirroredStrategy"));
}

std::shared_ptr<Trackable> OptimizerBase::trackable() const { return tracked_; }

TrackedParts OptimizerBase::tracked_parts() const {
  TrackedParts parts{.growing = !built()};
  if (!rate_.is_schedule()) {
    // const: what a checkpoint sets is not what this function is called for
    auto* rate = const_cast<std::atomic<double>*>(&constant_rate_);
    parts.values.push_back({.name = "learning_rate",
                            .dtype = kFloat64,
                            .shape = Shape{},
                            .read = [rate] { return scalar(rate->load(), kFloat64); },
                            .write = [rate](const Tensor& x) { rate->store(x.item<double>()); },
                            .identity = rate});
  }
  if (!built()) return parts;
  parts.values.push_back(tracked_variable("iteration", calls_));
  for (const std::vector<SlotVariable>& list : {kept_, slot_variables()}) {
    for (const SlotVariable& slot : list) {
      TrackedValue value = tracked_variable(slot.name, slot.variable);
      value.pieces = internal::pieces_of(slot.variable);
      value.owner = cohort::internal::variables::tracked_identity(trained_[slot.owner]);
      parts.values.push_back(std::move(value));
    }
  }
  return parts;
}

std::vector<Variable> OptimizerBase::slots_named(const std::vector<std::string>& names) const {
  std::vector<Variable> slots;
  for (const SlotVariable& slot : slot_variables()) {
    if (std::ranges::count(names, slot.name) > 0) slots.push_back(slot.variable);
  }
  return slots;
}

std::vector<Variable> OptimizerBase::stored_slots() const {
  std::vector<Variable> slots;
  for (const SlotVariable& slot : slot_variables()) slots.push_back(slot.variable);
  return slots;
}

std::vector<Variable> OptimizerBase::stored_variables() const {
  if (!built()) return {};
  std::vector<Variable> all = {calls_};
  if (!rate_.is_schedule()) {
    auto* rate = const_cast<std::atomic<double>*>(&constant_rate_);  // as in tracked_parts()
    all.push_back(internal::state_variable(
        {.name = name_ + "/learning_rate", .dtype = kFloat32},
        {.read = [rate] { return scalar(rate->load(), kFloat32); },
         // Files have it in float32: the same rate keeps the digits that a config gave it.
         .write =
             [rate](const Tensor& x) {
               const auto stored = x.item<float>();
               if (static_cast<float>(rate->load()) != stored) rate->store(stored);
             }}));
  }
  for (const char* name : {"average", "gradient_accumulator"}) {
    for (const SlotVariable& kept : kept_) {
      if (kept.name == name) all.push_back(kept.variable);
    }
  }
  const std::vector<Variable> slots = stored_slots();
  all.insert(all.end(), slots.begin(), slots.end());
  return all;
}

void OptimizerBase::tracked_parts_grown() {
  try {
    tracked_->grown();
  } catch (...) {
    built_.store(false, std::memory_order_release);
    throw;
  }
}

}  // namespace cohort::keras
