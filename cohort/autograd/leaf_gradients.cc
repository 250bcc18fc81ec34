// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/leaf_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/variable_impl.h"

namespace cohort {
namespace {

using Span = std::span<const Variable>;

void check_replica(const char* operation, Span variables) {
  for (const Variable& v : variables) {
    const int components = v.impl().component_count();
    COHORT_CHECK_STATE(components == 1 || current_replica() >= 0, "[", operation,
                       "] expected to be inside strategy.run for \"", v.name(), "\", which has ",
                       components, " components, got cross-replica context");
    COHORT_CHECK_STATE(current_replica() < 0 || components == current_replica_count(), "[",
                       operation, "] expected variables made under the scope of this strategy (",
                       current_replica_count(), " replicas), got \"", v.name(), "\" with ",
                       components, " components");
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
  return v.impl().component(replica).tensor.mutable_grad();
}

// One contiguous tensor without history, which the reduction may write.
Tensor flat_grad(const Variable& v, int replica) {
  Tensor& grad = grad_of(v, replica);
  if (!grad.defined()) {
    grad = at::zeros_like(v.impl().component(replica).tensor.detach());
  } else if (grad.is_sparse()) {
    throw Unimplemented(str_cat("[all_reduce_grad] expected a dense .grad of \"", v.name(),
                                "\", got a sparse one; use a dense embedding, or an optimizer of "
                                "keras with gradients_of()"));
  } else if (!grad.is_contiguous() || grad.requires_grad()) {
    grad = grad.detach().clone(at::MemoryFormat::Contiguous);
  }
  return grad.view({-1});
}

Flats collect(Span variables, int replicas) {
  const at::NoGradGuard no_grad;
  Flats flats;
  for (const Variable& v : variables) {
    bool any = false;
    for (int r = 0; r < replicas; ++r) any = any || grad_of(v, r).defined();
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
  internal::reduce_range({.op = op,
                          .dtype = all[0].scalar_type(),
                          .sources = sources,
                          .outs = places,
                          .begin = begin,
                          .end = end,
                          .divisor = static_cast<double>(all.size()),
                          .memory = all[0].device().type()});
}

}  // namespace

Gradients gradients_of(Span variables) {
  check_replica("gradients_of", variables);
  const at::NoGradGuard no_grad;
  auto lease = std::make_shared<internal::GradientLease>();
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
  for (const Variable& v : variables) v.impl().local_component().tensor.mutable_grad().reset();
}

void all_reduce_grad(Span variables, ReduceOpArg name) {
  const ReduceOp op = name;
  check_replica("all_reduce_grad", variables);
  COHORT_CHECK_ARG(op == ReduceOp::kSum || op == ReduceOp::kMean,
                   "[all_reduce_grad] expected sum or mean, got ", reduce_op_name(op));
  internal::check_one_worker("[all_reduce_grad] ", internal::current_layout());
  internal::ReplicaGroup* group = internal::current_replica_group();
  if (group == nullptr || group->size() == 1) return;
  const auto flats = group->merge("all_reduce_grad", variables, [&](internal::Brought<Span> all) {
    for (const Span& other : all) {
      COHORT_CHECK_STATE(std::ranges::equal(other, variables),
                         "[all_reduce_grad] expected the same variables on every replica, got "
                         "others");
    }
    return collect(variables, group->size());
  });
  // Each replica reduces its share of all elements, for everybody.
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
    if (begin < stop) reduce_in_place(tensors, begin - start, stop - start, op);
    start += tensors[0].numel();
  }
  group->barrier();
}

}  // namespace cohort
