// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/attention.h"

#include <ATen/ops/ones.h>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/internal/call_node.h"
#include "cohort/keras/layers/internal/draws.h"

namespace cohort::keras {
namespace internal {

ScoredAttention::ScoredAttention(std::string name) : NestLayer(std::move(name)) {}
ScoredAttention::~ScoredAttention() = default;

void ScoredAttention::set_dropout(double rate, std::optional<uint64_t> seed) {
  COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[", class_name(), "] expected 0 <= dropout <= 1, got ",
                   rate);
  rate_ = rate;
  if (rate > 0) masks_ = std::make_unique<Draws>(seed, Draws::Number::kOfTheUnseeded);
}

TrackedParts ScoredAttention::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  if (masks_ != nullptr) masks_->add_to(parts);
  return parts;
}

void ScoredAttention::check_inputs(std::size_t count) const {
  COHORT_CHECK_ARG(count == 2 || count == 3, "[", name(),
                   "] expected {query, value} or {query, value, key}, got ", count, " inputs");
}

namespace {

Tensor part_of(const Element& nest, std::size_t i) {
  if (!nest.is_tuple() || i >= nest.size() || !nest[i].has_value()) return {};
  return nest[i].tensor();
}

// [1, tq, tv]: position i sees what is not behind it.
Tensor causal_pairs(int64_t queries, int64_t values, const Tensor& like) {
  return at::ones({1, queries, values}, like.options().dtype(kBool)).tril();
}

}  // namespace

Element ScoredAttention::call_nest(const Element& inputs, const CallArgs& args) {
  check_inputs(inputs.is_tuple() ? inputs.size() : 1);
  const Tensor query = inputs[0].tensor(), value = inputs[1].tensor();
  Tensor weights = scores(query, inputs.size() > 2 ? inputs[2].tensor() : value);
  Tensor seen = part_of(args.mask, 1);
  if (seen.defined()) seen = seen.to(kBool).unsqueeze(-2);
  if (args.use_causal_mask) {
    const Tensor causal = causal_pairs(weights.size(-2), weights.size(-1), weights);
    seen = seen.defined() ? seen.logical_and(causal) : causal;
  }
  if (seen.defined()) {
    const double far = weights.scalar_type() == kFloat16 ? 65504.0 : 1e9;
    weights = weights.where(seen, weights - far);
  }
  weights = weights.softmax(-1);
  if (args.training && rate_ > 0)
    weights = weights * masks_->keep_mask(shape_of(weights), rate_, weights);
  Tensor output = weights.matmul(value);
  const Tensor counts = part_of(args.mask, 0);
  if (counts.defined()) {
    output = output.masked_fill(counts.to(kBool).logical_not().unsqueeze(-1), 0);
  }
  if (!args.return_attention_scores) return output;
  return {output, weights};
}

ElementSpec ScoredAttention::compute_output_spec(const ElementSpec& inputs) const {
  check_inputs(inputs.size());
  Shape shape = inputs[0].leaf().shape;
  shape.back() = inputs[1].leaf().shape.back();
  return TensorSpec{.shape = std::move(shape), .dtype = dtype_policy().compute_dtype()};
}

Element ScoredAttention::compute_mask(const Element&, const Element& mask) const {
  return mask.is_tuple() ? mask[0] : Element();
}

}  // namespace internal

AttentionLayer::AttentionLayer(AttentionOptions options) : LayerImpl(std::move(options)) {
  const std::string& mode = config().score_mode;
  COHORT_CHECK_ARG(mode == "dot" || mode == "concat",
                   "[attention] expected score_mode dot or concat, got ", mode);
  set_dropout(config().dropout, config().seed);
}

void AttentionLayer::build_nest(const ElementSpec& inputs) {
  check_inputs(inputs.size());
  const DType dtype = config().dtype.variable_dtype();
  const auto one = [&](const char* weight) {
    return add_weight({.name = weight, .shape = {}, .dtype = dtype, .initializer = "ones"});
  };
  if (config().use_scale) scale_ = one("scale");
  if (config().score_mode == "concat") concat_score_weight_ = one("concat_score_weight");
}

Tensor AttentionLayer::scores(const Tensor& query, const Tensor& key) const {
  if (config().score_mode == "dot") {
    const Tensor dots = query.matmul(key.transpose(-2, -1));
    return scale_ ? dots * scale_.value().to(dots.scalar_type()) : dots;
  }
  Tensor sums = query.unsqueeze(-2) + key.unsqueeze(-3);
  if (scale_) sums = sums * scale_.value().to(sums.scalar_type());
  return concat_score_weight_.value().to(sums.scalar_type()) * sums.tanh().sum(-1);
}

AdditiveAttentionLayer::AdditiveAttentionLayer(AdditiveAttentionOptions options)
    : LayerImpl(std::move(options)) {
  set_dropout(config().dropout, config().seed);
}

void AdditiveAttentionLayer::build_nest(const ElementSpec& inputs) {
  check_inputs(inputs.size());
  if (!config().use_scale) return;
  scale_ = add_weight({.name = "scale",
                       .shape = {inputs[0].leaf().shape.back()},
                       .dtype = config().dtype.variable_dtype(),
                       .initializer = "glorot_uniform"});
}

Tensor AdditiveAttentionLayer::scores(const Tensor& query, const Tensor& key) const {
  const Tensor sums = (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh();
  if (!scale_) return sums.sum(-1);
  return sums.matmul(scale_.value().to(sums.scalar_type()));
}

KerasTensor AttentionHandle::operator()(const KerasTensor& inputs,
                                        const AttentionArgs& args) const {
  return internal::draw_call(*this, inputs,
                             {{.training = args.training, .mask = args.mask, .initial_state = {}},
                              args.attention_mask,
                              args.use_causal_mask});
}

Attention::Attention(AttentionOptions options)
    : AttentionHandle(std::make_shared<AttentionLayer>(std::move(options))) {}

AdditiveAttention::AdditiveAttention(AdditiveAttentionOptions options)
    : AttentionHandle(std::make_shared<AdditiveAttentionLayer>(std::move(options))) {}

}  // namespace cohort::keras
