// SPDX-License-Identifier: Apache-2.0
//
// Attention, with the names, options and defaults of Keras 3.
//
//   const keras::MultiHeadAttention attention(8, 16);
//   const Tensor x = random_normal({4, 20, 32});
//   const Tensor y = attention(Element{x, x}, {.use_causal_mask = true}).tensor();
//
// Inputs are {query, value} or {query, value, key}; without a key the value is it. `.mask` is a
// nest like them, bool [b, t] each. `.attention_mask`, `.use_causal_mask` and
// `.return_attention_scores` are arguments of a call; in a functional model, all but the last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {

class Draws;

/// What Attention and AdditiveAttention do with their scores.
class ScoredAttention : public NestLayer {
 public:
  explicit ScoredAttention(std::string name);
  ~ScoredAttention() override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element& mask) const override;

 protected:
  /// Shapes: query [b, tq, n], key [b, tv, n], result [b, tq, tv].
  virtual Tensor scores(const Tensor& query, const Tensor& key) const = 0;
  /// Errors: InvalidArgument unless 0 <= rate <= 1.
  void set_dropout(double rate, std::optional<uint64_t> seed);
  /// Errors: InvalidArgument unless these are two or three.
  void check_inputs(std::size_t count) const;
  TrackedParts tracked_parts() const override;

 private:
  double rate_ = 0;
  std::unique_ptr<Draws> masks_;
};

}  // namespace internal

/// Arguments of a call of attention in a functional model, see CallArgs.
struct AttentionArgs {
  std::optional<bool> training = {};
  KerasTensor mask = {};
  KerasTensor attention_mask = {};
  bool use_causal_mask = false;
};

/// A handle whose calls in a functional model take AttentionArgs.
class AttentionHandle : public Layer {
 public:
  using Layer::Layer;
  Tensor operator()(const Tensor& input, const CallArgs& args = {}) const {
    return Layer::operator()(input, args);
  }
  Element operator()(const Element& inputs, const CallArgs& args = {}) const {
    return Layer::operator()(inputs, args);
  }
  /// Errors: as of Layer.
  KerasTensor operator()(const KerasTensor& inputs, const AttentionArgs& args = {}) const;
};

struct AttentionOptions {
  bool use_scale = false;          ///< A weight multiplies the scores.
  std::string score_mode = "dot";  ///< Or "concat": sum(tanh(query + key)) times a weight.
  double dropout = 0;              ///< Of the scores, while training.
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("use_scale", c.use_scale);
    f("score_mode", c.score_mode);
    f("dropout", c.dropout);
    f("seed", c.seed);
  }
};

/// Of Attention, see core.h; as the others here.
class AttentionLayer : public LayerImpl<AttentionOptions, internal::ScoredAttention> {
 public:
  explicit AttentionLayer(AttentionOptions options);
  void build_nest(const ElementSpec& inputs) override;

 protected:
  Tensor scores(const Tensor& query, const Tensor& key) const override;

 private:
  Variable scale_, concat_score_weight_;
};

/// softmax(query . key) . value. Shapes: query [b, tq, n], value [b, tv, m], key [b, tv, n], result
/// [b, tq, m]; scores [b, tq, tv]. TF: keras.layers.Attention.
class Attention : public AttentionHandle {
 public:
  explicit Attention(AttentionOptions options = {});
};

struct AdditiveAttentionOptions {
  bool use_scale = true;
  double dropout = 0;
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("use_scale", c.use_scale);
    f("dropout", c.dropout);
    f("seed", c.seed);
  }
};

class AdditiveAttentionLayer
    : public LayerImpl<AdditiveAttentionOptions, internal::ScoredAttention> {
 public:
  explicit AdditiveAttentionLayer(AdditiveAttentionOptions options);
  void build_nest(const ElementSpec& inputs) override;

 protected:
  Tensor scores(const Tensor& query, const Tensor& key) const override;

 private:
  Variable scale_;
};

/// softmax(sum(scale * tanh(query + key))) . value. Shapes: as Attention.
class AdditiveAttention : public AttentionHandle {
 public:
  explicit AdditiveAttention(AdditiveAttentionOptions options = {});
};

struct MultiHeadAttentionOptions {
  std::optional<int64_t> value_dim = {};  ///< Per head; unset: key_dim.
  double dropout = 0;
  bool use_bias = true;
  std::optional<Shape> output_shape = {};      ///< Unset: the query's last axis.
  std::optional<Shape> attention_axes = {};    ///< Unset: all but the batch and the features.
  std::optional<int64_t> sliding_window = {};  ///< Positions further apart do not attend.
  std::optional<bool> flash_attention = {};    ///< True throws Unimplemented.
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};  ///< Of the projections.
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  bool use_gate = false;  ///< A sigmoid of the query multiplies the result of each head.
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct MultiHeadAttentionConfig : MultiHeadAttentionOptions {
  int64_t num_heads = 0;
  int64_t key_dim = 0;
  static void fields(auto& c, auto&& f) {
    f.required("num_heads", c.num_heads);
    f.required("key_dim", c.key_dim);
    f("value_dim", c.value_dim);
    f("dropout", c.dropout);
    f("use_bias", c.use_bias);
    f("use_gate", c.use_gate);
    f("output_shape", c.output_shape);
    f("attention_axes", c.attention_axes);
    f("sliding_window", c.sliding_window);
    f("kernel_initializer", c.kernel_initializer);
    f("bias_initializer", c.bias_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("bias_regularizer", c.bias_regularizer);
    f("activity_regularizer", c.activity_regularizer);
    f("kernel_constraint", c.kernel_constraint);
    f("bias_constraint", c.bias_constraint);
    f("seed", c.seed);
  }
};

namespace internal {

/// Of several heads: projections and what is between them.
class HeadAttention : public NestLayer {
 public:
  explicit HeadAttention(std::string name);
  ~HeadAttention() override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element& mask) const override;
  bool inputs_are_arguments() const override { return true; }
  Config get_build_config() const override;

 protected:
  struct Heads {
    int64_t query = 0;
    int64_t key = 0;  ///< As many as of the query, or a divisor of it.
    int64_t key_dim = 0;
    int64_t value_dim = 0;
    double dropout = 0;
    std::optional<int64_t> sliding_window = {};
    std::optional<uint64_t> seed = {};
    bool gate = false;
    Shape output = {};  ///< Empty: the query's last axis.
  };
  /// Errors: InvalidArgument for numbers that are not positive, or do not fit.
  void set_heads(const Heads& heads);
  /// Makes the projections, of inputs with the attention over `axes`. C has their options.
  template <class C>
  void make_projections(const ElementSpec& inputs, const C& config, const Shape& axes);
  const Shape& axes() const { return axes_; }
  TrackedParts tracked_parts() const override;

 private:
  Tensor projected(std::size_t i, const Tensor& x) const;
  /// Which pairs see each other, bool, or undefined: all do. Shapes: [b or 1, tq, tv].
  Tensor pairs(const Tensor& query, const Tensor& value, const CallArgs& args) const;
  struct Attended {
    Tensor output, scores;
  };
  Attended attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                  const CallArgs& args);
  std::vector<int64_t> order(int64_t rank) const;

  Heads heads_;
  Shape axes_;
  std::unique_ptr<Draws> masks_;
  std::vector<Layer> projections_;  // query, key, (gate,) value, output
  std::vector<Shape> built_for_;
};

}  // namespace internal

class MultiHeadAttentionLayer
    : public LayerImpl<MultiHeadAttentionConfig, internal::HeadAttention> {
 public:
  explicit MultiHeadAttentionLayer(MultiHeadAttentionConfig config);
  void build_nest(const ElementSpec& inputs) override;
  Config get_config() const override;
};

/// Several heads of softmax(query . key / sqrt(key_dim)) . value, each of projections of its own.
/// Shapes: query [b, tq, n], value [b, tv, m], key [b, tv, k], result [b, tq, n]; scores [b, heads,
/// tq, tv]. Weights query, key, (gate,) value [in, heads, dim] and attention_output [heads, dim,
/// out]. A query that sees nothing gets the mean of the values, as in Keras (with dropout or
/// scores: 0). TF: keras.layers.MultiHeadAttention.
class MultiHeadAttention : public AttentionHandle {
 public:
  MultiHeadAttention(int64_t num_heads, int64_t key_dim, MultiHeadAttentionOptions options = {});
};

struct GroupedQueryAttentionOptions {
  double dropout = 0;
  bool use_bias = true;
  std::optional<int64_t> sliding_window = {};
  std::optional<bool> flash_attention = {};  ///< True throws Unimplemented.
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  bool use_gate = false;
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct GroupedQueryAttentionConfig : GroupedQueryAttentionOptions {
  int64_t head_dim = 0;
  int64_t num_query_heads = 0;
  int64_t num_key_value_heads = 0;
  static void fields(auto& c, auto&& f) {
    f.required("head_dim", c.head_dim);
    f.required("num_query_heads", c.num_query_heads);
    f.required("num_key_value_heads", c.num_key_value_heads);
    f("use_bias", c.use_bias);
    f("use_gate", c.use_gate);
    f("dropout", c.dropout);
    f("sliding_window", c.sliding_window);
    f("kernel_initializer", c.kernel_initializer);
    f("bias_initializer", c.bias_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("bias_regularizer", c.bias_regularizer);
    f("activity_regularizer", c.activity_regularizer);
    f("kernel_constraint", c.kernel_constraint);
    f("bias_constraint", c.bias_constraint);
    f("seed", c.seed);
  }
};

class GroupedQueryAttentionLayer
    : public LayerImpl<GroupedQueryAttentionConfig, internal::HeadAttention> {
 public:
  explicit GroupedQueryAttentionLayer(GroupedQueryAttentionConfig config);
  void build_nest(const ElementSpec& inputs) override;
};

/// MultiHeadAttention in which several heads of the query share one of key and value.
/// TF: keras.layers.GroupQueryAttention, the public name of Keras's class GroupedQueryAttention;
/// both names exist here.
class GroupedQueryAttention : public AttentionHandle {
 public:
  GroupedQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                        GroupedQueryAttentionOptions options = {});
};

using GroupQueryAttention = GroupedQueryAttention;

}  // namespace cohort::keras
