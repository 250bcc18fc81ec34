// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/spectral_normalization.h"

#include <ATen/ops/where.h>

#include <optional>
#include <utility>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras {
namespace {

// Of a row.
Tensor of_length_one(const Tensor& row) {
  constexpr double kLeast = 1e-7;
  return row / row.norm().clamp_min(kLeast);
}

// What Keras's layers have as an attribute of their own, not those inside.
Variable kernel_of(const LayerBase& layer, const std::string& who) {
  if (layer.sub_layers().empty()) {
    for (const char* wanted : {"/kernel", "/embeddings"}) {
      for (const Variable& weight : layer.variables()) {
        if (weight.name().ends_with(wanted)) return weight;
      }
    }
  }
  throw InvalidArgument(str_cat("[", who, "] expected a layer with a weight kernel or embeddings, ",
                                "got ", layer.class_name(), " ", layer.name()));
}

}  // namespace

SpectralNormalizationLayer::SpectralNormalizationLayer(SpectralNormalizationConfig config)
    : LayerImpl(std::move(config)) {
  COHORT_CHECK_ARG(this->config().layer.has_value(),
                   "[spectral_normalization] expected a layer, got none");
  COHORT_CHECK_ARG(this->config().power_iterations > 0,
                   "[spectral_normalization] expected power_iterations > 0, got ",
                   this->config().power_iterations);
  track(layer(), "layer");
}

void SpectralNormalizationLayer::build(const Shape& input_shape) {
  layer().base().ensure_built(input_shape);
  kernel_ = kernel_of(layer().base(), name());
  vector_u_ = add_weight({.name = "vector_u",
                          .shape = {1, kernel_.shape().back()},
                          .dtype = kernel_.dtype(),
                          .initializer = TruncatedNormal({.stddev = 0.02}),
                          .trainable = false});
}

std::vector<Variable> SpectralNormalizationLayer::stored_weights() const {
  if (!kernel_) return {};
  return {kernel_, vector_u_};
}

void SpectralNormalizationLayer::normalize() {
  cohort::internal::variables::store_of("[spectral_normalization] ", kernel_)
      .check_reads_behind_writes(name(), "SpectralNormalization");
  const cohort::internal::autograd::BelowAutograd below;
  const internal::ComputeType as_kept(std::nullopt);  // under mixed policies, too
  const Tensor kernel = kernel_.value();
  const Tensor is_zero = kernel.eq(0).all();
  if (is_zero.is_cpu() && is_zero.item<bool>()) return;
  const Tensor rows = kernel.reshape({-1, kernel.size(-1)});
  Tensor u = vector_u_.value(), v;
  for (int64_t i = 0; i < config().power_iterations; ++i) {
    v = of_length_one(u.mm(rows.t()));
    u = of_length_one(v.mm(rows));
  }
  const Tensor sigma = v.mm(rows).mm(u.t());
  if (auto* undo = cohort::internal::variables::StepUndo::current(); undo != nullptr) {
    undo->keep(kernel);
    undo->keep(vector_u_.value());
  }
  Tensor normal = kernel / sigma.reshape({});
  if (!is_zero.is_cpu()) {  // which nobody reads
    u = at::where(is_zero, vector_u_.value(), u);
    normal = at::where(is_zero, kernel, normal);
  }
  vector_u_.assign(u);
  kernel_.assign(normal);
  // Written below autograd's eyes: gradients of an earlier call, which has read what was there, are
  // LibTorch's error and no wrong numbers.
  kernel_.impl().leaf().tensor.unsafeGetTensorImpl()->bump_version();
}

Tensor SpectralNormalizationLayer::call(const Tensor& input, const CallArgs& args) {
  if (args.training) normalize();
  CallArgs own;
  own.training = args.training;
  own.mask = args.mask;
  const Tensor y = layer()(input, own);
  // As Keras, which leaves lookups in whole numbers no other way out.
  return input.is_floating_point() ? y.to(input.scalar_type()) : y;
}

Shape SpectralNormalizationLayer::compute_output_shape(const Shape& input_shape) const {
  return layer().base().compute_output_shape(input_shape);
}

SpectralNormalization::SpectralNormalization(Layer layer, SpectralNormalizationOptions options)
    : Layer(std::make_shared<SpectralNormalizationLayer>(
          SpectralNormalizationConfig{std::move(options), std::move(layer)})) {}

}  // namespace cohort::keras
