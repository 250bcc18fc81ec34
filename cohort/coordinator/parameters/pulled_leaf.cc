// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/pulled_leaf.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "cohort/runtime/libtorch.h"

namespace cohort::internal::coordinator {
namespace {

using Accumulator = runtime::GraphNodePtr<torch::autograd::Node>;

}  // namespace

PulledLeaf::PulledLeaf(const Shape& shape, DType dtype, bool trainable) {
  const Shape no_strides(shape.size(), 0);
  leaf_.tensor = at::empty_strided(shape, no_strides, at::TensorOptions(dtype));
  if (!trainable) return;
  leaf_.tensor.set_requires_grad(true);
  leaf_.accumulator =
      std::make_shared<Accumulator>(torch::autograd::impl::grad_accumulator(leaf_.tensor));
}

void PulledLeaf::fill(const Tensor& value) {
  const at::NoGradGuard no_grad;
  has_value_ = true;
  if (leaf_.accumulator == nullptr) {
    leaf_.tensor = value;
    return;
  }
  leaf_.tensor.set_data(value);
  leaf_.tensor.unsafeGetTensorImpl()->bump_version();
}

bool PulledLeaf::is_recorded() const {
  if (leaf_.accumulator == nullptr) return false;
  return static_cast<const Accumulator*>(leaf_.accumulator.get())->use_count() > 1;
}

}  // namespace cohort::internal::coordinator
