// SPDX-License-Identifier: Apache-2.0
//
// Layers over sequences, with the names, options and defaults of Keras 3.
//
//   keras::Sequential model({keras::Embedding(1000, 16, {.mask_zero = true}), keras::LSTM(32),
//                            keras::Dense(1)});
//   const Element x = random_normal({8, 20, 4});
//   const Element parts = keras::LSTM(32, {.return_state = true})(x);  // output, h, c
//
// Inputs are [b, t, ...]. A mask, bool [b, t], says which steps count; it comes with the inputs, or
// as `.mask`. The states before the first step are `.initial_state`, or follow x in a nest:
// {x, h, c}.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/layers/rnn_cells.h"

namespace cohort::keras {

/// How a recurrent layer goes over its sequence.
struct SequenceModes {
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool zero_output_for_mask = false;
};

/// Base of all recurrent layers: a cell, over the steps of a sequence.
class RecurrentBase : public LayerBase {
 public:
  using LayerBase::LayerBase;

  RNNCellBase& cell() const { return *cell_; }
  const SequenceModes& modes() const { return modes_; }
  /// Internal: Bidirectional decides it for its layers.
  void set_zero_output_for_mask(bool on) { modes_.zero_output_for_mask = on; }
  /// Of a stateful layer: the next batch begins with zeros. Order: replicas are at rest.
  void reset_state() const;

  void build(const Shape& input_shape) override;
  void build_nest(const ElementSpec& inputs) override { build(inputs[0].leaf().shape); }
  /// Errors: InvalidArgument with return_state, for a call that wants one tensor.
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  /// Of the output alone.
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element& mask) const override;

 protected:
  void set_cell(const Layer& cell, const SequenceModes& modes);

 private:
  SequenceRun make_run(const Element& inputs, const CallArgs& args);
  std::vector<Tensor> first_states(const Element& inputs, const Element& given, const Tensor& step);
  /// The variables of a stateful layer, made at the first call: a batch says how large they are.
  void make_states(const std::vector<Shape>& shapes);
  void keep_states(const std::vector<Tensor>& states) const;

  RNNCellBase* cell_ = nullptr;
  SequenceModes modes_;
  std::vector<Variable> states_;
};

namespace internal {

/// What the configs of all recurrent layers begin with.
void sequence_fields(auto& c, auto&& f) {
  f("return_sequences", c.return_sequences);
  f("return_state", c.return_state);
  f("go_backwards", c.go_backwards);
  f("stateful", c.stateful);
  f("unroll", c.unroll);
  f("zero_output_for_mask", c.zero_output_for_mask);
}

template <class C>
SequenceModes modes_of(const C& c) {
  return {.return_sequences = c.return_sequences,
          .return_state = c.return_state,
          .go_backwards = c.go_backwards,
          .stateful = c.stateful,
          .zero_output_for_mask = c.zero_output_for_mask};
}

/// The config of a layer's cell: To's members of the same names.
template <class To, class From>
To cell_config(const From& from, const char* name) {
  To to;
  to.activation = from.activation;
  if constexpr (requires { to.recurrent_activation; }) {
    to.recurrent_activation = from.recurrent_activation;
  }
  to.use_bias = from.use_bias;
  to.kernel_initializer = from.kernel_initializer;
  to.recurrent_initializer = from.recurrent_initializer;
  to.bias_initializer = from.bias_initializer;
  if constexpr (requires { to.unit_forget_bias; }) to.unit_forget_bias = from.unit_forget_bias;
  to.kernel_regularizer = from.kernel_regularizer;
  to.recurrent_regularizer = from.recurrent_regularizer;
  to.bias_regularizer = from.bias_regularizer;
  to.kernel_constraint = from.kernel_constraint;
  to.recurrent_constraint = from.recurrent_constraint;
  to.bias_constraint = from.bias_constraint;
  to.dropout = from.dropout;
  to.recurrent_dropout = from.recurrent_dropout;
  if constexpr (requires { to.reset_after; }) to.reset_after = from.reset_after;
  to.seed = from.seed;
  to.dtype = from.dtype;
  to.trainable = from.trainable;
  to.name = name;
  if constexpr (requires { to.units; }) to.units = from.units;
  return to;
}

/// Errors: Unimplemented for use_cudnn = true.
void check_no_cudnn(const std::optional<bool>& use_cudnn, const char* who);

/// Of a class with its own options, which are also those of its cell.
template <class C>
class RecurrentImpl : public LayerImpl<C, RecurrentBase> {
 public:
  using LayerImpl<C, RecurrentBase>::LayerImpl;
  Config get_config() const override {
    Config config = LayerImpl<C, RecurrentBase>::get_config();
    config.set("zero_output_for_mask", this->modes().zero_output_for_mask);
    return config;
  }
};

}  // namespace internal

struct RNNOptions {
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool zero_output_for_mask = false;
  Regularizer activity_regularizer = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct RNNConfig : RNNOptions {
  std::optional<Layer> cell = {};
  static void fields(auto& c, auto&& f) {
    internal::sequence_fields(c, f);
    f.required("cell", c.cell);
    f.extra("activity_regularizer", c.activity_regularizer, {});
  }
};

/// Of RNN, see core.h; as the next three.
class RNNLayer : public internal::RecurrentImpl<RNNConfig> {
 public:
  explicit RNNLayer(RNNConfig config);
};

/// What recurrent handles have besides.
class RecurrentLayer : public Layer {
 public:
  using Layer::Layer;
  /// TF: RNN.reset_state.
  void reset_state() const { static_cast<RecurrentBase&>(base()).reset_state(); }
};

/// A cell, or several as one, over the steps of a sequence. The output is the last step's, or with
/// return_sequences of all; with return_state the states after the last step follow it.
/// Stateful: a batch begins with the states of the one before, each replica its own.
/// Shapes: [b, t, ...] to [b, units] or [b, t, units]. TF: keras.layers.RNN.
class RNN : public RecurrentLayer {
 public:
  explicit RNN(Layer cell, RNNOptions options = {});
  explicit RNN(std::vector<Layer> cells, RNNOptions options = {});
};

struct SimpleRNNOptions {
  ActivationFunction activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  std::optional<uint64_t> seed = {};
  bool zero_output_for_mask = false;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct SimpleRNNConfig : SimpleRNNOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    internal::sequence_fields(c, f);
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

class SimpleRNNLayer : public internal::RecurrentImpl<SimpleRNNConfig> {
 public:
  explicit SimpleRNNLayer(SimpleRNNConfig config);
};

/// TF: keras.layers.SimpleRNN.
class SimpleRNN : public RecurrentLayer {
 public:
  explicit SimpleRNN(int64_t units, SimpleRNNOptions options = {});
};

struct LSTMOptions {
  ActivationFunction activation = "tanh";
  ActivationFunction recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;  ///< Share of the inputs that training drops, the same in all steps.
  double recurrent_dropout = 0;  ///< Of the state; the layer is then slower.
  std::optional<uint64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;                 ///< Changes nothing.
  std::optional<bool> use_cudnn = {};  ///< Unset: "auto". True throws Unimplemented.
  bool zero_output_for_mask = false;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct LSTMConfig : LSTMOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    internal::sequence_fields(c, f);
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

class LSTMLayer : public internal::RecurrentImpl<LSTMConfig> {
 public:
  explicit LSTMLayer(LSTMConfig config);
};

/// Weights kernel [in, 4 units], recurrent_kernel [units, 4 units], bias [4 units]: gates i, f, c,
/// o. TF: keras.layers.LSTM. Cost: with tanh and sigmoid in float32 or float64 one node for the
/// whole sequence, with a mask, too; anything else one step after the other.
class LSTM : public RecurrentLayer {
 public:
  explicit LSTM(int64_t units, LSTMOptions options = {});
};

struct GRUOptions {
  ActivationFunction activation = "tanh";
  ActivationFunction recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<uint64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool reset_after = true;  ///< The reset gate is applied after the product; two rows of bias.
  std::optional<bool> use_cudnn = {};
  bool zero_output_for_mask = false;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct GRUConfig : GRUOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    internal::sequence_fields(c, f);
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

class GRULayer : public internal::RecurrentImpl<GRUConfig> {
 public:
  explicit GRULayer(GRUConfig config);
};

/// Weights kernel [in, 3 units], recurrent_kernel [units, 3 units], bias [2, 3 units] (without
/// reset_after [3 units]): gates z, r, h. TF: keras.layers.GRU. Cost: as LSTM, with reset_after.
class GRU : public RecurrentLayer {
 public:
  explicit GRU(int64_t units, GRUOptions options = {});
};

}  // namespace cohort::keras
