// SPDX-License-Identifier: Apache-2.0
//
// Embedding and Masking, with the names, options and defaults of Keras 3.
//
//   keras::Embedding(10000, 64, {.mask_zero = true});
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
/// A layer of rows by numbers, whose options have output_dim and mask_zero.
template <class C>
class RowsLayer : public LayerImpl<C> {
 public:
  using LayerImpl<C>::LayerImpl;
  Shape compute_output_shape(const Shape& input_shape) const override {
    Shape out = input_shape;
    out.push_back(this->config().output_dim);
    return out;
  }
  bool supports_masking() const override { return this->config().mask_zero; }
  Element compute_mask(const Element& inputs, const Element&) const override {
    return this->config().mask_zero ? Element(inputs.tensor().ne(0)) : Element();
  }
};
}  // namespace internal

struct EmbeddingOptions {
  Initializer embeddings_initializer = "uniform";
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  bool mask_zero = false;                 ///< The number 0 is padding: masked.
  Tensor weights = {};                    ///< Initial rows, [input_dim, output_dim].
  std::optional<int64_t> lora_rank = {};  ///< Not there yet: throws Unimplemented.
  std::optional<double> lora_alpha = {};  ///< Likewise.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct EmbeddingConfig : EmbeddingOptions {
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  static void fields(auto& c, auto&& f) {
    f.required("input_dim", c.input_dim);
    f.required("output_dim", c.output_dim);
    f("embeddings_initializer", c.embeddings_initializer);
    f("embeddings_regularizer", c.embeddings_regularizer);
    f("activity_regularizer", c.activity_regularizer);
    f("embeddings_constraint", c.embeddings_constraint);
    f("mask_zero", c.mask_zero);
    f.newer("quantization_config", nullptr);
    f.extra("lora_rank", c.lora_rank, {});
    f.extra("lora_alpha", c.lora_alpha, {});
  }
};

/// Of Embedding, see core.h.
class EmbeddingLayer : public internal::RowsLayer<EmbeddingConfig> {
 public:
  explicit EmbeddingLayer(EmbeddingConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  Variable embeddings_;
};

/// Rows of a table by their numbers. The gradient is IndexedSlices, where the table is only used by
/// lookups: see embedding_lookup.
/// Shapes: [b, ...] to [b, ..., output_dim]; weight embeddings [input_dim, output_dim].
/// Errors: InvalidArgument for numbers outside of [0, input_dim). TF: keras.layers.Embedding.
class Embedding : public Layer {
 public:
  Embedding(int64_t input_dim, int64_t output_dim, EmbeddingOptions options = {});
};

struct ReversibleEmbeddingOptions {
  bool tie_weights = true;  ///< False: reverse() has a weight of its own.
  Initializer embeddings_initializer = "uniform";
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  bool mask_zero = false;
  std::optional<DType> reverse_dtype = {};    ///< What reverse() computes in; unset: as it comes.
  std::optional<double> logit_soft_cap = {};  ///< reverse() gives tanh(y / cap) * cap.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ReversibleEmbeddingConfig : ReversibleEmbeddingOptions {
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  static void fields(auto& c, auto&& f) {
    f.required("input_dim", c.input_dim);
    f.required("output_dim", c.output_dim);
    f("embeddings_initializer", c.embeddings_initializer);
    f("embeddings_regularizer", c.embeddings_regularizer);
    f("activity_regularizer", c.activity_regularizer);
    f("embeddings_constraint", c.embeddings_constraint);
    f("mask_zero", c.mask_zero);
    f.newer("quantization_config", nullptr);
    f("tie_weights", c.tie_weights);
    f("reverse_dtype", c.reverse_dtype);
    f("logit_soft_cap", c.logit_soft_cap);
  }
};

class ReversibleEmbeddingLayer : public internal::RowsLayer<ReversibleEmbeddingConfig> {
 public:
  explicit ReversibleEmbeddingLayer(ReversibleEmbeddingConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs&) override;
  /// Of ReversibleEmbedding.
  Tensor reverse(const Tensor& hidden) const;

 private:
  Variable embeddings_, reverse_embeddings_;
};

/// Embedding that also maps hidden states back to a logit for each of the input_dim numbers, for
/// language models.
/// Shapes: as Embedding; weight reverse_embeddings [output_dim, input_dim] unless tied.
/// TF: keras.layers.ReversibleEmbedding.
class ReversibleEmbedding : public Layer {
 public:
  ReversibleEmbedding(int64_t input_dim, int64_t output_dim,
                      ReversibleEmbeddingOptions options = {});
  /// hidden . embeddings^T, or . reverse_embeddings.
  /// Shapes: [..., output_dim] to [..., input_dim]. Errors: FailedPrecondition before the layer is
  /// built. TF: layer(hidden, reverse=True).
  Tensor reverse(const Tensor& hidden) const;
};

struct MaskingOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct MaskingConfig : MaskingOptions {
  double mask_value = 0;
  static void fields(auto& c, auto&& f) { f("mask_value", c.mask_value); }
};

class MaskingLayer : public LayerImpl<MaskingConfig> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& input, const CallArgs&) override;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element& mask) const override;

 private:
  Tensor counts(const Tensor& x) const;
};

/// Masks the steps whose features all equal mask_value, and makes them 0.
/// Shapes: [b, t, ..., features]. TF: keras.layers.Masking.
class Masking : public Layer {
 public:
  explicit Masking(double mask_value = 0, MaskingOptions options = {});
};

}  // namespace cohort::keras
