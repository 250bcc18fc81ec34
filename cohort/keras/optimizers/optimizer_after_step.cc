// SPDX-License-Identifier: Apache-2.0
//
// What follows an update: moving averages of the variables, and their constraints.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {

using cohort::internal::Brought;
using cohort::internal::ReplicaGroup;

namespace {

int own_replica() { return std::max(0, current_replica()); }

}  // namespace

template <class Work>
void OptimizerBase::on_own_copies(const Work& work) {
  if (!shares_parameters_) return work(own_replica());
  cohort::internal::current_replica_group()->merge("optimizer.on_own_copies", *this,
                                                   [&](Brought<OptimizerBase>) { work(0); });
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
      Tensor& mean = averages_[i].impl().component(replica).tensor;
      mean.mul_(momentum).add_(variable.value(), 1 - momentum);
      if (overwrites) variable.assign(mean);
    }
  });
}

// A constraint is the program's: all are called before anything is written, so that one that throws
// leaves the copies of all replicas and workers equal.
void OptimizerBase::constrain(bool together) {
  std::vector<Tensor> values;
  const auto compute = [&](int replica) {
    for (const std::size_t i : constrained_) {
      const Variable& variable = components_[i][static_cast<std::size_t>(replica)];
      values.push_back(trained_[i].impl().description().constraint(variable.value()));
      variable.impl().check_value("[optimizer.apply_gradients] ", values.back());
    }
  };
  const auto write = [&](int replica) {
    for (std::size_t c = 0; c < constrained_.size(); ++c) {
      components_[constrained_[c]][static_cast<std::size_t>(replica)].assign(values[c]);
    }
  };
  cohort::internal::Communicator* const workers =
      together ? cohort::internal::other_workers("[optimizer.apply_gradients] ") : nullptr;
  const auto agree = [&] {
    if (workers != nullptr) workers->commit();
  };
  if (shares_parameters_) {
    return on_own_copies([&](int replica) {
      compute(replica);
      agree();
      write(replica);
    });
  }
  compute(own_replica());
  ReplicaGroup* const group = cohort::internal::current_replica_group();
  if (together && group != nullptr && (group->size() > 1 || workers != nullptr)) {
    group->merge("optimizer.constrain", *this, [&](Brought<OptimizerBase>) { agree(); });
  }
  write(own_replica());
}

void OptimizerBase::finalize_variable_values() const {
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1,
                     "[optimizer.finalize_variable_values] expected cross-replica context, got a "
                     "replica");
  if (averages_.empty()) return;
  if (is_remote_) calls_.value();  // as all workers have counted
  if (step() == 0) return;         // nothing to be put anywhere
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    // Each copy its own average: replicas that apply their own gradients differ.
    for (int r = 0; r < static_cast<int>(components_[i].size()); ++r) {
      components_[i][static_cast<std::size_t>(r)].assign(
          is_remote_ ? averages_[i].value() : averages_[i].impl().component(r).tensor);
    }
  }
}

}  // namespace cohort::keras
