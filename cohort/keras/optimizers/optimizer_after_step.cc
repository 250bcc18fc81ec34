// SPDX-License-Identifier: Apache-2.0
//
// What follows an update: moving averages of the variables, and their constraints.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {

using cohort::internal::runtime::Brought;
using cohort::internal::runtime::ReplicaGroup;

namespace {

// As an update of float16 and bfloat16: computed in float32, rounded once.
void move_average(Tensor& mean, const Tensor& now, double momentum) {
  if (mean.element_size() >= 4) {
    mean.mul_(momentum).add_(now, 1 - momentum);
  } else {
    mean.copy_(mean.to(kFloat32).mul_(momentum).add_(now.to(kFloat32), 1 - momentum));
  }
}

int own_replica() { return std::max(0, current_replica()); }

std::vector<std::size_t> union_of(Brought<std::vector<std::size_t>> lists) {
  std::vector<std::size_t> all;
  for (const std::vector<std::size_t>& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

template <class Work>
void OptimizerBase::on_own_copies(const Work& work) {
  if (!shares_parameters_) return work(own_replica());
  cohort::internal::runtime::current_replica_group()->merge(
      "optimizer.on_own_copies", *this, [&](Brought<OptimizerBase>) { work(0); });
}

void OptimizerBase::average(int64_t updates_before) {
  // The first average is the variable itself.
  const double momentum = updates_before == 0 ? 0 : options_.ema_momentum;
  const auto& every = options_.ema_overwrite_frequency;
  const bool overwrites = every && (updates_before + 1) % *every == 0;
  on_own_copies([&](int replica) {
    for (std::size_t i = 0; i < averages_.size(); ++i) {
      const Variable& variable = components_[i][static_cast<std::size_t>(replica)];
      if (is_remote_) {  // other workers do the same: what each of them adds stays
        const Tensor now = variable.value();
        momentum == 0 ? averages_[i].assign(now)
                      : averages_[i].assign_add((now - averages_[i].value()) * (1 - momentum));
        continue;
      }
      Tensor& mean = averages_[i].impl().leaf_of(replica).tensor;
      move_average(mean, variable.value(), momentum);
      if (overwrites) variable.assign(mean);
    }
  });
}

OptimizerBase::Touched OptimizerBase::touched_by(const Gradients& gradients) const {
  Touched touched;
  if (constrained_.empty()) return touched;
  std::vector<bool> given(trained_.size());
  for (const GradientAndVariable& pair : gradients) {
    if (pair.gradient.has_value()) given[index_of(pair.variable)] = true;
  }
  for (const std::size_t i : constrained_) {
    touched.given.push_back(given[i]);
    touched.versions.push_back(version_of(i));
  }
  return touched;
}

// How often the calling replica's copy was written; what servers and shards keep says nothing.
uint64_t OptimizerBase::version_of(std::size_t i) const {
  const int replica = shares_parameters_ ? 0 : own_replica();
  const Variable& copy = components_[i][static_cast<std::size_t>(replica)];
  if (is_remote_ || copy.impl().leaf_count() != 1) return 0;
  return static_cast<uint64_t>(copy.value()._version());
}

// As Keras: a variable without a gradient stays as it is, constraint or not. One that only another
// replica has a gradient for was written by the update, and so the copies stay equal.
std::vector<std::size_t> OptimizerBase::to_constrain(const Touched& touched) const {
  std::vector<std::size_t> due;
  for (std::size_t c = 0; c < constrained_.size(); ++c) {
    const bool written = version_of(constrained_[c]) != touched.versions[c];
    if (touched.given[c] || written) due.push_back(constrained_[c]);
  }
  return due;
}

// A constraint is the program's: all are called before anything is written, so that one that throws
// leaves the copies of all replicas and workers equal. In calls that only accumulate nobody meets:
// there each replica writes what it gets back if the run fails.
void OptimizerBase::constrain(std::vector<std::size_t> due, bool together, bool updates) {
  std::vector<Tensor> values;
  const auto compute = [&](int replica) {
    for (const std::size_t i : due) {
      const Variable& variable = components_[i][static_cast<std::size_t>(replica)];
      values.push_back(trained_[i].impl().description().constraint(variable.value()));
      variable.impl().check_value("[optimizer.apply_gradients] ", values.back());
    }
  };
  auto* const undo = cohort::internal::variables::StepUndo::current();
  const auto write = [&](int replica) {
    for (std::size_t c = 0; c < due.size(); ++c) {
      const Variable& variable = components_[due[c]][static_cast<std::size_t>(replica)];
      if (!updates && undo != nullptr) undo->keep(variable.value());
      variable.assign(values[c]);
    }
  };
  cohort::internal::collectives::Communicator* const workers =
      together ? cohort::internal::runtime::other_workers("[optimizer.apply_gradients] ") : nullptr;
  const auto agree = [&] {
    if (workers != nullptr) workers->commit();
  };
  ReplicaGroup* const group = cohort::internal::runtime::current_replica_group();
  if (shares_parameters_) {
    group->merge("optimizer.constrain", due, [&](Brought<std::vector<std::size_t>> all) {
      due = union_of(all);
      compute(0);
      agree();
      write(0);
    });
    return;
  }
  compute(own_replica());
  if (together && group != nullptr && (group->size() > 1 || workers != nullptr)) {
    group->merge("optimizer.constrain", *this, [&](Brought<OptimizerBase>) { agree(); });
  }
  write(own_replica());
}

// Each copy its own average: replicas that apply their own gradients differ.
template <class Work>
void OptimizerBase::for_each_copy(const Work& work) {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    for (std::size_t r = 0; r < components_[i].size(); ++r) {
      work(components_[i][r], averages_[i].impl().leaf_of(static_cast<int>(r)).tensor);
    }
  }
}

void OptimizerBase::finalize_variable_values() {
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1,
                     "[optimizer.finalize_variable_values] expected cross-replica context, got a "
                     "replica");
  if (averages_.empty()) return;
  if (is_remote_) calls_.value();  // as all workers have counted
  if (step() == 0) return;         // nothing to be put anywhere
  if (model_has_averages_) {       // so they go on from there
    model_has_averages_ = false;
    for_each_copy(
        [](const Variable& weight, Tensor& average) { average.copy_(weight.value().detach()); });
    return;
  }
  if (!is_remote_) {
    for_each_copy([](const Variable& weight, Tensor& average) { weight.assign(average); });
    return;
  }
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    for (const Variable& part : components_[i]) part.assign(averages_[i].value());
  }
}

void OptimizerBase::swap_averages(bool into_model) {
  COHORT_CHECK_STATE(options_.use_ema, "[swap_averages] expected an optimizer with use_ema, got ",
                     class_name(), " \"", name_, "\" without it");
  COHORT_CHECK_STATE(current_replica() < 0,
                     "[swap_averages] expected cross-replica context, got a replica");
  if (is_remote_) {
    throw Unimplemented(
        str_cat("[swap_averages] optimizer \"", name_,
                "\": parameter servers keep the variables, and cannot exchange them "
                "with their averages"));
  }
  if (averages_.empty() || step() == 0 || into_model == model_has_averages_) return;
  for_each_copy([](const Variable& weight, Tensor& average) {
    const Tensor before = weight.value().detach().clone();
    weight.assign(average);
    average.copy_(before);
  });
  model_has_averages_ = into_model;
}

}  // namespace cohort::keras
