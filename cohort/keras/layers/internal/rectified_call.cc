// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/rectified_call.h"

#include <typeinfo>
#include <utility>

#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/normalization.h"

namespace cohort::keras::internal {
namespace {
thread_local const LayerBase* t_rectified = nullptr;
}

bool can_rectify(const LayerBase& layer) {
  return typeid(layer) == typeid(BatchNormalizationLayer);
}

bool is_rectifier(const LayerBase& layer) {
  if (typeid(layer) == typeid(ReLULayer)) {
    const ReLUOptions& o = static_cast<const ReLULayer&>(layer).config();
    return !o.max_value && o.negative_slope == 0 && o.threshold == 0;
  }
  return typeid(layer) == typeid(ActivationLayer) &&
         static_cast<const ActivationLayer&>(layer).config().activation.is_relu();
}

bool can_join(const LayerBase& layer, const LayerBase& next) {
  return can_rectify(layer) && is_rectifier(next) &&
         layer.dtype_policy().compute_dtype() == next.dtype_policy().compute_dtype();
}

RectifiedCall::RectifiedCall(const LayerBase& layer) : outer_(std::exchange(t_rectified, &layer)) {}
RectifiedCall::~RectifiedCall() { t_rectified = outer_; }
bool RectifiedCall::of(const LayerBase& layer) { return t_rectified == &layer; }

}  // namespace cohort::keras::internal
