// SPDX-License-Identifier: Apache-2.0
//
// A step by a rule of the program's own: the gradients of all replicas and workers are summed, and
// update() is called for each variable.
#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/keras/optimizers/internal/rows_stay.h"
#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {

using cohort::internal::runtime::Brought;
using cohort::internal::runtime::ReplicaGroup;
using cohort::internal::variables::store_of;

namespace {

constexpr const char* kApplyRule = "[optimizer.apply_gradients] ";

std::span<std::byte> bytes_of_tensor(const Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), t.nbytes()};
}

// What some workers have a sum of, and others nothing: the sum of those that have one.
Tensor sum_of_some(cohort::internal::collectives::Communicator& workers, const Tensor& mine,
                   const Variable& variable, std::span<const std::byte> has) {
  std::vector<Tensor> all;
  std::vector<std::span<std::byte>> pieces;
  for (int w = 0; w < workers.size(); ++w) {
    const bool own = w == workers.rank() && mine.defined();
    all.push_back(own ? mine : zeros(variable.shape(), variable.dtype()));
    pieces.push_back(bytes_of_tensor(all.back()));
  }
  workers.all_gather(pieces);
  std::vector<Tensor> present;
  for (std::size_t w = 0; w < all.size(); ++w) {
    if (has[w] != std::byte{0}) present.push_back(all[w]);
  }
  return cohort::internal::reductions::reduce_in_order(ReduceOp::kSum, present);
}

// The local replicas' sums of each variable, none where there is no gradient, become those of all
// workers, in their order.
void sum_over_workers(cohort::internal::collectives::Communicator& workers,
                      const std::vector<Variable>& variables, std::vector<Tensor>& sums) {
  std::vector<std::byte> here;
  for (Tensor& sum : sums) {
    here.push_back(std::byte{sum.defined()});
    // Transports move the host's memory.
    if (sum.defined()) sum = cohort::internal::reductions::in_a_row(sum.to(at::kCPU));
  }
  const std::vector<std::byte> all =
      cohort::internal::collectives::gather_bytes(workers, kApplyRule, here);
  std::vector<cohort::internal::collectives::Communicator::Pending> pending;
  for (std::size_t v = 0; v < sums.size(); ++v) {
    std::vector<std::byte> has;
    for (std::size_t at = v; at < all.size(); at += sums.size()) has.push_back(all[at]);
    const auto count = std::count(has.begin(), has.end(), std::byte{1});
    if (count == workers.size()) {
      pending.push_back(workers.start_all_reduce(bytes_of_tensor(sums[v]), sums[v].scalar_type(),
                                                 ReduceOp::kSum, {.tag = v}));
    } else if (count > 0) {
      sums[v] = sum_of_some(workers, sums[v], variables[v], has);
    }
  }
  for (auto& one : pending) one.wait();
  for (std::size_t v = 0; v < sums.size(); ++v) {
    const Device& own = variables[v].impl().description().devices.front();
    if (sums[v].defined()) sums[v] = cohort::internal::runtime::tensor_on(own, sums[v]);
  }
}

void refuse_aggregates(const std::string& name, const Variable& variable) {
  if (!store_of("[optimizer.build] ", variable).aggregates_pushes(variable)) return;
  throw Unimplemented(
      str_cat("[", name, "] expected an optimizer whose rule servers apply with sync_replicas, ",
              "got one with a rule of its own, which workers compute; use another one of keras"));
}

// The rule's own, which it may write: with one replica the gradient is the program's.
Gradient copy_of(const Gradient& g) {
  if (!g.is_sparse()) return g.dense().clone();
  const IndexedSlices& rows = g.slices();
  return IndexedSlices{rows.values.clone(), rows.indices.clone(), rows.dense_shape};
}

}  // namespace

std::vector<Tensor> OptimizerBase::sum_over_replicas(Brought<Gradients> all) const {
  std::vector<std::vector<Tensor>> parts(trained_.size());
  for (const Gradients& gradients : all) {
    for (const GradientAndVariable& pair : gradients) {
      if (!pair.gradient.has_value()) continue;
      parts[index_of(pair.variable)].push_back(pair.gradient.as_tensor());
    }
  }
  std::vector<Tensor> sums(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    // Not a view of a gradient buffer: its replica may be at the next step already.
    sums[i] = parts[i].size() == 1
                  ? parts[i][0].clone()
                  : cohort::internal::reductions::reduce_in_order(ReduceOp::kSum, parts[i]);
  }
  return sums;
}

void OptimizerBase::apply_to_shared(const std::vector<Tensor>& sums) {
  see_gradients(sums);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].defined()) update(components_[i][0], sums[i]);
  }
}

// A rule may throw when it has written a part: then of weights and slots nothing stays, on any
// replica of any worker.
void OptimizerBase::apply(const Gradients& gradients, const ApplyOptions& options) {
  cohort::internal::runtime::refuse_recording("its optimizer's rule is computed with on the host");
  if (is_remote_) refuse_aggregates(name(), trained_.front());
  internal::check_rows_stay(name(), trained_, "rule of a class that writes variables itself");
  const int replica = std::max(0, current_replica());
  const auto whole_or_not = [this](int copy, const auto& write) {
    cohort::internal::variables::StepUndo before;
    if (!is_remote_) {  // servers have written by then
      for (const Variable& v : trained_) before.keep(v.impl().leaf_of(copy).tensor);
      for (const SlotVariable& slot : slot_variables()) {
        before.keep(slot.variable.impl().leaf_of(copy).tensor);
      }
    }
    try {
      write();
    } catch (...) {
      before.roll_back();
      throw;
    }
  };
  const auto update_own = [&](std::size_t i, const Gradient& g) {
    if (g.has_value()) update(components_[i][static_cast<std::size_t>(replica)], copy_of(g));
  };
  cohort::internal::collectives::Communicator* const workers =
      cohort::internal::runtime::other_workers(kApplyRule);
  if ((replicas_ == 1 && workers == nullptr) || options.skip_gradients_aggregation) {
    std::vector<Tensor> all(trained_.size());
    for (const GradientAndVariable& pair : gradients) {
      if (pair.gradient.has_value()) all[index_of(pair.variable)] = pair.gradient.as_tensor();
    }
    return whole_or_not(replica, [&] {
      see_gradients(all);
      for (const GradientAndVariable& pair : gradients) {
        if (pair.gradient.has_value()) update_own(index_of(pair.variable), pair.gradient);
      }
    });
  }
  const auto agree = [&] {
    if (workers != nullptr) workers->commit();  // behind it no other worker fails
  };
  ReplicaGroup& group = *cohort::internal::runtime::current_replica_group();
  const auto sums = group.merge("optimizer.sum_gradients", gradients, [&](Brought<Gradients> all) {
    std::vector<Tensor> own = sum_over_replicas(all);
    if (workers != nullptr) sum_over_workers(*workers, trained_, own);
    if (shares_parameters_) {
      whole_or_not(0, [&] {
        apply_to_shared(own);
        agree();
      });
    }
    return own;
  });
  if (shares_parameters_) return;
  whole_or_not(replica, [&] {
    see_gradients(*sums);
    for (std::size_t i = 0; i < sums->size(); ++i) update_own(i, (*sums)[i]);
    group.merge("optimizer.updated", *this, [&](Brought<OptimizerBase>) { agree(); });
  });
}

}  // namespace cohort::keras
