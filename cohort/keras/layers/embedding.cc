// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/embedding.h"

#include "cohort/autograd/embedding.h"
#include "cohort/base/check.h"

namespace cohort::keras {

EmbeddingLayer::EmbeddingLayer(EmbeddingConfig config) : RowsLayer(std::move(config)) {
  const EmbeddingConfig& o = this->config();
  COHORT_CHECK_ARG(o.input_dim > 0 && o.output_dim > 0,
                   "[embedding] expected input_dim and output_dim > 0, got ", o.input_dim, " and ",
                   o.output_dim);
  if (o.lora_rank || o.lora_alpha) {
    throw Unimplemented(
        "[embedding] expected neither lora_rank nor lora_alpha: low-rank adaptation is not there "
        "yet");
  }
  const Shape shape = {o.input_dim, o.output_dim};
  COHORT_CHECK_ARG(!o.weights.defined() || shape_of(o.weights) == shape,
                   "[embedding] expected weights of shape ", bracketed(shape), ", got ",
                   bracketed(o.weights.sizes()));
  set_autocast(false);
}

void EmbeddingLayer::build(const Shape&) {
  const EmbeddingConfig& o = config();
  const auto given = [weights = o.weights](const Shape&, DType dtype) {
    return weights.to(dtype).clone();
  };
  embeddings_ = add_weight(
      {.name = "embeddings",
       .shape = {o.input_dim, o.output_dim},
       .dtype = o.dtype.variable_dtype(),
       .initializer = o.weights.defined() ? Initializer(given) : o.embeddings_initializer,
       .regularizer = o.embeddings_regularizer,
       .constraint = o.embeddings_constraint});
}

// Keras takes numbers that float as well, for so inputs come without a dtype.
Tensor EmbeddingLayer::call(const Tensor& input, const CallArgs&) {
  const DType dtype = input.scalar_type();
  const bool counts = dtype == kInt64 || dtype == kInt32;
  return embedding_lookup(embeddings_, counts ? input : input.to(kInt64))
      .to(config().dtype.compute_dtype());
}

ReversibleEmbeddingLayer::ReversibleEmbeddingLayer(ReversibleEmbeddingConfig config)
    : RowsLayer(std::move(config)) {
  COHORT_CHECK_ARG(this->config().input_dim > 0 && this->config().output_dim > 0,
                   "[reversible_embedding] expected input_dim and output_dim > 0, got ",
                   this->config().input_dim, " and ", this->config().output_dim);
  set_autocast(false);
}

void ReversibleEmbeddingLayer::build(const Shape&) {
  const ReversibleEmbeddingConfig& o = config();
  embeddings_ = add_weight({.name = "embeddings",
                            .shape = {o.input_dim, o.output_dim},
                            .dtype = o.dtype.variable_dtype(),
                            .initializer = o.embeddings_initializer,
                            .regularizer = o.embeddings_regularizer,
                            .constraint = o.embeddings_constraint});
  if (o.tie_weights) return;
  reverse_embeddings_ = add_weight({.name = "reverse_embeddings",
                                    .shape = {o.output_dim, o.input_dim},
                                    .dtype = o.dtype.variable_dtype(),
                                    .initializer = o.embeddings_initializer});
}

Tensor ReversibleEmbeddingLayer::call(const Tensor& input, const CallArgs&) {
  const DType dtype = input.scalar_type();
  const bool counts = dtype == kInt64 || dtype == kInt32;
  return embedding_lookup(embeddings_, counts ? input : input.to(kInt64))
      .to(config().dtype.compute_dtype());
}

Tensor ReversibleEmbeddingLayer::reverse(const Tensor& hidden) const {
  COHORT_CHECK_STATE(built(), "[reversible_embedding.reverse] expected ", name(),
                     " to have weights, got a layer that was never called: look up a row first");
  const ReversibleEmbeddingConfig& o = config();
  const DType dtype = o.reverse_dtype.value_or(o.dtype.compute_dtype());
  const Tensor kernel = o.tie_weights ? embeddings_.value().t() : reverse_embeddings_.value();
  const Tensor scores = hidden.to(dtype).matmul(kernel.to(dtype));
  if (!o.logit_soft_cap) return scores;
  return (scores / *o.logit_soft_cap).tanh() * *o.logit_soft_cap;
}

Tensor MaskingLayer::counts(const Tensor& x) const { return x.ne(config().mask_value).any(-1); }

Tensor MaskingLayer::call(const Tensor& input, const CallArgs&) {
  return input.masked_fill(counts(input).logical_not().unsqueeze(-1), 0);
}

Element MaskingLayer::compute_mask(const Element& inputs, const Element&) const {
  return counts(inputs.tensor());
}

Embedding::Embedding(int64_t input_dim, int64_t output_dim, EmbeddingOptions options)
    : Layer(std::make_shared<EmbeddingLayer>(
          EmbeddingConfig{std::move(options), input_dim, output_dim})) {}

ReversibleEmbedding::ReversibleEmbedding(int64_t input_dim, int64_t output_dim,
                                         ReversibleEmbeddingOptions options)
    : Layer(std::make_shared<ReversibleEmbeddingLayer>(
          ReversibleEmbeddingConfig{std::move(options), input_dim, output_dim})) {}

Tensor ReversibleEmbedding::reverse(const Tensor& hidden) const {
  return static_cast<ReversibleEmbeddingLayer&>(base()).reverse(hidden);
}

Masking::Masking(double mask_value, MaskingOptions options)
    : Layer(std::make_shared<MaskingLayer>(MaskingConfig{std::move(options), mask_value})) {}

}  // namespace cohort::keras
