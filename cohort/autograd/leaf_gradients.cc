// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/leaf_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/variable_impl.h"

namespace cohort {
namespace {

using Span = std::span<const Variable>;

constexpr const char* kAllReduceGrad = "[all_reduce_grad] ";

void check_replica(const char* operation, Span variables) {
  for (const Variable& v : variables) {
    const int components = v.impl().leaf_count();
    COHORT_CHECK_STATE(components == 1 || current_replica() >= 0, "[", operation,
                       "] expected to be inside strategy.run for ", label(v.impl()), ", which has ",
                       components, " components, got cross-replica context");
    COHORT_CHECK_STATE(current_replica() < 0 || components == current_replica_count(), "[",
                       operation, "] expected variables made under the scope of this strategy (",
                       current_replica_count(), " replicas), got ", label(v.impl()), " of ",
                       owner_of(v.impl()), " with ", components, " components");
  }
}

IndexedSlices rows_of(const Tensor& sparse, const Shape& shape) {
  const Tensor rows = sparse.detach();
  return {.values = rows._values(), .indices = rows._indices()[0], .dense_shape = shape};
}

/// `.grad` of all replicas as flat tensors: [variable][replica], empty where no replica has one.
struct Flats {
  std::vector<std::vector<Tensor>> of;
  int64_t total = 0;
};

Tensor& grad_of(const Variable& v, int replica) {
  return v.impl().leaf_of(replica).tensor.mutable_grad();
}

// One contiguous tensor without history, which the reduction may write.
Tensor flat_grad(const Variable& v, int replica) {
  Tensor& grad = grad_of(v, replica);
  if (!grad.defined()) {
    grad = at::zeros_like(v.impl().leaf_of(replica).tensor.detach());
  } else if (grad.is_sparse()) {
    throw Unimplemented(str_cat("[all_reduce_grad] expected a dense .grad of ", label(v.impl()),
                                ", got a sparse one; use a dense embedding, or an optimizer of "
                                "keras with gradients_of()"));
  } else if (!grad.is_contiguous() || grad.requires_grad()) {
    grad = grad.detach().clone(at::MemoryFormat::Contiguous);
  }
  return grad.view({-1});
}

// Which variables have a .grad, here or on another worker.
std::vector<std::byte> with_grad(Span variables, int replicas,
                                 internal::collectives::Communicator* workers) {
  std::vector<std::byte> has(variables.size());
  std::string text;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    for (int r = 0; r < replicas; ++r) {
      if (grad_of(variables[i], r).defined()) has[i] = std::byte{1};
    }
    if (workers == nullptr) continue;
    text += str_cat(i == 0 ? "" : ", ", variables[i].name(), bracketed(variables[i].shape()));
  }
  if (workers == nullptr) return has;
  internal::collectives::check_same_on_workers(*workers, kAllReduceGrad, "variables", text);
  const std::vector<std::byte> all =
      internal::collectives::gather_bytes(*workers, kAllReduceGrad, has);
  for (std::size_t i = 0; i < all.size(); ++i) has[i % has.size()] |= all[i];
  return has;
}

Flats collect(Span variables, int replicas, internal::collectives::Communicator* workers) {
  const at::NoGradGuard no_grad;
  Flats flats;
  const std::vector<std::byte> has = with_grad(variables, replicas, workers);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& v = variables[i];
    const bool any = has[i] != std::byte{0};
    std::vector<Tensor> all;
    for (int r = 0; any && r < replicas; ++r) all.push_back(flat_grad(v, r));
    if (any) flats.total += v.impl().numel();
    flats.of.push_back(std::move(all));
  }
  return flats;
}

// Elements [begin, end) of every replica's tensor, in place.
void reduce_in_place(const std::vector<Tensor>& all, int64_t begin, int64_t end, ReduceOp op) {
  std::vector<void*> places;
  for (const Tensor& one : all) places.push_back(one.mutable_data_ptr());
  const std::vector<const void*> sources(places.begin(), places.end());
  internal::reductions::reduce_range({.op = op,
                                      .dtype = all[0].scalar_type(),
                                      .sources = sources,
                                      .outs = places,
                                      .begin = begin,
                                      .end = end,
                                      .divisor = static_cast<double>(all.size()),
                                      .memory = all[0].device().type()});
}

// The workers' sums, in place: replica 0's first, which the others copy.
void reduce_over_workers(internal::runtime::ReplicaGroup& group,
                         internal::collectives::Communicator& workers, const Flats& flats,
                         ReduceOp op) {
  group.merge(
      "all_reduce_grad of all workers", flats.total, [&](internal::runtime::Brought<int64_t>) {
        std::vector<internal::collectives::Communicator::Pending> pending;
        for (std::size_t i = 0; i < flats.of.size(); ++i) {
          if (flats.of[i].empty()) continue;
          const Tensor& sum = flats.of[i][0];
          const internal::collectives::Bytes bytes{static_cast<std::byte*>(sum.mutable_data_ptr()),
                                                   sum.nbytes()};
          pending.push_back(
              workers.start_all_reduce(bytes, sum.scalar_type(), ReduceOp::kSum, {.tag = i}));
        }
        for (auto& one : pending) one.wait();
        const int replicas = internal::runtime::current_layout().total();
        for (const std::vector<Tensor>& tensors : flats.of) {
          if (op == ReduceOp::kMean && !tensors.empty()) {
            internal::collectives::divide_by_count(tensors[0], replicas);
          }
        }
      });
  if (group.size() == 1) return;
  const auto replica = static_cast<std::size_t>(current_replica());
  for (const std::vector<Tensor>& tensors : flats.of) {
    if (replica > 0 && !tensors.empty()) tensors[replica].copy_(tensors[0]);
  }
  group.barrier();
}

}  // namespace

Gradients gradients_of(Span variables) {
  check_replica("gradients_of", variables);
  const at::NoGradGuard no_grad;
  auto lease = std::make_shared<internal::variables::GradientLease>();
  std::vector<GradientAndVariable> pairs;
  pairs.reserve(variables.size());
  for (const Variable& v : variables) {
    const Tensor grad = v.grad();
    pairs.push_back({{}, v});
    if (!grad.defined()) continue;
    if (grad.is_sparse() && grad.sparse_dim() == 1) {
      pairs.back().gradient = rows_of(grad, v.shape());
    } else if (v.trainable()) {
      const Tensor slot = lease->place(v.impl());
      slot.copy_(grad.is_sparse() ? grad.to_dense() : grad);
      pairs.back().gradient = slot;
    } else {
      pairs.back().gradient = grad.detach().clone();
    }
  }
  return {std::move(pairs), std::move(lease)};
}

void zero_grad(Span variables) {
  check_replica("zero_grad", variables);
  for (const Variable& v : variables) v.impl().leaf().tensor.mutable_grad().reset();
}

void all_reduce_grad(Span variables, ReduceOpArg name) {
  const ReduceOp op = name;
  check_replica("all_reduce_grad", variables);
  COHORT_CHECK_ARG(op == ReduceOp::kSum || op == ReduceOp::kMean,
                   "[all_reduce_grad] expected sum or mean, got ", reduce_op_name(op));
  internal::collectives::Communicator* const workers =
      internal::runtime::other_workers(kAllReduceGrad);
  internal::runtime::ReplicaGroup* group = internal::runtime::current_replica_group();
  if (group == nullptr || (group->size() == 1 && workers == nullptr)) return;
  const auto flats =
      group->merge("all_reduce_grad", variables, [&](internal::runtime::Brought<Span> all) {
        for (const Span& other : all) {
          COHORT_CHECK_STATE(std::ranges::equal(other, variables),
                             "[all_reduce_grad] expected the same variables on every replica, got "
                             "others");
        }
        return collect(variables, group->size(), workers);
      });
  // Each replica reduces its share of all elements, for everybody; a mean is divided at the end.
  const ReduceOp step = workers != nullptr ? ReduceOp::kSum : op;
  const at::NoGradGuard no_grad;
  const int64_t replica = current_replica();
  const int64_t mine = flats->total * replica / group->size();
  const int64_t end = flats->total * (replica + 1) / group->size();
  int64_t start = 0;
  for (const std::vector<Tensor>& tensors : flats->of) {
    if (tensors.empty()) continue;
    // Written through pointers: a graph that has saved this .grad must notice.
    tensors[static_cast<std::size_t>(replica)].unsafeGetTensorImpl()->bump_version();
    const int64_t begin = std::max(mine, start);
    const int64_t stop = std::min(end, start + tensors[0].numel());
    if (begin < stop) reduce_in_place(tensors, begin - start, stop - start, step);
    start += tensors[0].numel();
  }
  group->barrier();
  if (workers != nullptr) reduce_over_workers(*group, *workers, *flats, op);
}

}  // namespace cohort
