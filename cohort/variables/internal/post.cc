// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/post.h"

#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/values/internal/add_rows.h"
#include "cohort/variables/component.h"
#include "cohort/variables/internal/gradient_place.h"

namespace cohort::internal::variables {
namespace {

// By more than `handles`, or by a view of it.
bool is_held(const Tensor& gradient, std::size_t handles) {
  return gradient.use_count() > handles || gradient.storage().use_count() > 1;
}

}  // namespace

Tensor sum_of(const UpdateLayout& layout, Posts posts, std::size_t variable) {
  const Variable& v = layout.variables()[variable];
  std::vector<Tensor> made;
  std::vector<const void*> sources;
  for (const Post& post : posts) {
    if (post.gradients[variable] != nullptr) {
      sources.push_back(post.gradients[variable]);
    } else if (const RowSum* rows = post.rows_of(variable)) {
      made.push_back(rows->to_dense(v.shape()));
      sources.push_back(made.back().const_data_ptr());
    }
  }
  const Tensor& like = v.impl().leaf_of(0).tensor;
  const Tensor out = at::empty(like.sizes(), like.options().requires_grad(false));
  void* const outs[] = {out.mutable_data_ptr()};
  reductions::reduce_range({.op = ReduceOp::kSum,
                            .dtype = v.dtype(),
                            .sources = sources,
                            .outs = outs,
                            .begin = 0,
                            .end = out.numel(),
                            .memory = out.device().type()});
  return out;
}

// Where rows without a gradient would stay as they are, to the bit, or are to.
bool PostWriter::takes_rows(const Step& step, std::size_t variable) const {
  if (layout_.row_width(variable) == 0 || layout_.is_staged()) return false;
  if (lazy_rows_) return true;
  // A pass over the table takes a GPU less time than the host waits for the rows' numbers.
  if (layout_.run_of(variable).device(0).kind() == DeviceKind::kGpu) return false;
  const bool decays = step.weight_decay != 0 && layout_.run_of(variable).decays;
  return !decays && !clips_norms_ && update_rules::ignores_zero_gradients(step.rule);
}

void PostWriter::put_rows(Post& post, const IndexedSlices& slices, std::size_t variable) const {
  const Variable& of = layout_.variables()[variable];
  of.impl().check_slices("[optimizer.apply_gradients] ", slices);
  post.rows.emplace(variable, sum_rows(slices, of.dtype()));
}

GradientBuffer* PostWriter::put_dense(Post& post, const GradientAndVariable& pair,
                                      std::size_t index, GradientLease& lease) const {
  LocalImpl& variable = local_impl(pair.variable.impl());
  const Component& component = variable.leaf();
  if (pair.gradient.is_sparse()) {
    Tensor place = lease.free_place(variable);
    if (place.defined() && pair.gradient.slices().dense_shape == shape_of(place)) {
      values::write_dense(pair.gradient.slices(), place);
      post.gradients[index] = static_cast<const std::byte*>(place.const_data_ptr());
      return component.buffer_of(place);
    }
  }
  Tensor gradient = pair.gradient.as_tensor();
  const c10::Device here = component.tensor.device();
  if (gradient.device() != here) gradient = gradient.to(here);
  COHORT_CHECK_ARG(gradient.sizes() == component.tensor.sizes(),
                   "[optimizer.apply_gradients] expected a gradient of shape ",
                   bracketed(variable.description().shape), " for ", label(variable), ", got ",
                   bracketed(gradient.sizes()));
  GradientBuffer* buffer = component.buffer_of(gradient);
  // Whoever held it may have changed its strides or its memory.
  if (buffer != nullptr &&
      !is_as_made(gradient, component.tensor,
                  component.arena()->gradient_data(*buffer, component.range->offset))) {
    buffer = nullptr;
  }
  // Beside the component's view, the pair's and this one.
  if (buffer != nullptr && is_held(gradient, 3)) post.held = true;
  if (buffer == nullptr) {
    const Tensor place = lease.free_place(variable);
    if (place.defined()) {
      place.copy_(gradient.detach());
      buffer = component.buffer_of(place);
      gradient = place;
    } else {
      gradient = post.copies.emplace_back(layout_.pad(index, gradient.detach()));
    }
  }
  post.gradients[index] = static_cast<const std::byte*>(gradient.const_data_ptr());
  return buffer;
}

// One pass can walk over each run then.
bool PostWriter::fills_runs(const Post& post) const {
  for (const UpdateRun& run : layout_.runs()) {
    const std::byte* const begin = post.gradients[run.members.front()];
    for (const std::size_t v : run.members) {
      if (post.gradients[v] != begin + layout_.offset_in_run(v) * run.element_size) return false;
    }
  }
  return true;
}

void PostWriter::fill(Post& post, const Gradients& gradients, const Step& step, uint64_t stamp,
                      uint64_t readable_until) const {
  std::shared_ptr<GradientLease> lease = gradients.lease();
  // Gradients that were made outside of the run, or by another replica, come to all of them.
  if (lease && !lease->is_here()) lease = nullptr;
  std::fill(post.gradients.begin(), post.gradients.end(), nullptr);
  post.copies.clear();
  post.rows.clear();
  post.held = false;
  post.stamp = stamp;
  std::size_t found = 0;
  c10::SmallVector<GradientBuffer*, 4> buffers;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].gradient.has_value()) continue;
    if (!lease) lease = std::make_shared<GradientLease>();
    const std::size_t index = layout_.index_of(gradients[i].variable, i);
    COHORT_CHECK_ARG(!post.has(index),
                     "[optimizer.apply_gradients] expected each variable once, got ",
                     label(gradients[i].variable.impl()), " twice");
    ++found;
    if (gradients[i].gradient.is_sparse() && takes_rows(step, index)) {
      put_rows(post, gradients[i].gradient.slices(), index);
      continue;
    }
    GradientBuffer* const buffer = put_dense(post, gradients[i], index, *lease);
    const bool is_new = buffer != nullptr && (buffers.empty() || buffers.back() != buffer);
    if (is_new) buffers.push_back(buffer);
  }
  // Not earlier: a lease has no places in a buffer that others may read already.
  for (GradientBuffer* const buffer : buffers) {
    if (buffer->readable_until.load(std::memory_order_relaxed) < readable_until) {
      buffer->readable_until.store(readable_until, std::memory_order_relaxed);
    }
  }
  post.full = found == layout_.variables().size() && post.rows.empty() && fills_runs(post);
}

}  // namespace cohort::internal::variables
