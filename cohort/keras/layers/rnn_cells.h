// SPDX-License-Identifier: Apache-2.0
//
// Cells: what a recurrent layer does at each step, with the names, options and defaults of Keras 3.
//
//   keras::RNN rnn({keras::LSTMCell(64), keras::LSTMCell(32)});
//   struct Leak : keras::RNNCellBase {  // a cell of a program
//     Shape state_size() const override { return {8}; }
//     Tensor step(const Tensor& x, std::vector<Tensor>& states, const keras::CallArgs&) override {
//       return states[0] = states[0] * 0.5 + x;
//     }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
class Draws;
}

/// A sequence that a cell runs over.
struct SequenceRun {
  Tensor steps = {};                ///< [t, b, ...].
  std::vector<Tensor> states = {};  ///< Before the first step; run() leaves those after the last.
  Tensor mask = {};                 ///< bool [t, b]: which steps count; undefined: all do.
  bool zero_output_for_mask = false;
  bool return_sequences = false;
};

/// Derive to write a cell. Called directly with {x, {states...}}, it gives {output, {states...}}.
/// TF: the cells that keras.layers.RNN takes.
class RNNCellBase : public LayerBase {
 public:
  using LayerBase::LayerBase;

  /// Sizes of the states, of each but the batch.
  virtual Shape state_size() const = 0;
  /// Default: that of the first state.
  virtual int64_t output_size() const { return state_size().at(0); }
  /// Replaces the states, returns the output.
  /// Shapes: input [b, ...], states [b, state_size()[i]], output [b, output_size()].
  virtual Tensor step(const Tensor& input, std::vector<Tensor>& states, const CallArgs& args) = 0;
  /// All steps. A step that does not count leaves the states, and gives the output before it again
  /// (zeros: there is none, or zero_output_for_mask). Default: step() for each of them.
  /// Shapes: result [t, b, ...]; without return_sequences the last [b, ...].
  virtual Tensor run(SequenceRun& run, const CallArgs& args);

  /// Shapes of the states and of the output for an input of one step.
  virtual std::vector<Shape> state_shapes(const Shape& step) const;
  virtual Shape output_shape(const Shape& step) const;
  /// The states as a program sees them: a tuple; of a stack one for each cell.
  virtual Element nest_states(const std::vector<Tensor>& states) const;

  void build_nest(const ElementSpec& inputs) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
};

namespace internal {

/// Of all classes with a kernel, a recurrent kernel and a bias: what a config says of them.
void recurrent_fields(auto& c, auto&& f) {
  f("activation", c.activation);
  if constexpr (requires { c.recurrent_activation; }) {
    f("recurrent_activation", c.recurrent_activation);
  }
  f("use_bias", c.use_bias);
  f("kernel_initializer", c.kernel_initializer);
  f("recurrent_initializer", c.recurrent_initializer);
  f("bias_initializer", c.bias_initializer);
  if constexpr (requires { c.unit_forget_bias; }) f("unit_forget_bias", c.unit_forget_bias);
  f("kernel_regularizer", c.kernel_regularizer);
  f("recurrent_regularizer", c.recurrent_regularizer);
  f("bias_regularizer", c.bias_regularizer);
  if constexpr (requires { c.activity_regularizer; }) {
    f("activity_regularizer", c.activity_regularizer);
  }
  f("kernel_constraint", c.kernel_constraint);
  f("recurrent_constraint", c.recurrent_constraint);
  f("bias_constraint", c.bias_constraint);
  f("dropout", c.dropout);
  f("recurrent_dropout", c.recurrent_dropout);
  if constexpr (requires { c.reset_after; }) f("reset_after", c.reset_after);
  // Keras's SimpleRNN takes a seed, but does not say it.
  constexpr bool is_simple_rnn = requires { c.return_sequences; }
  &&!requires { c.recurrent_activation; };
  if constexpr (is_simple_rnn) {
    f.extra("seed", c.seed, {});
  } else {
    f("seed", c.seed);
  }
}

}  // namespace internal

struct SimpleRNNCellOptions {
  ActivationFunction activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;  ///< Share of the inputs that training drops, the same in all steps.
  double recurrent_dropout = 0;  ///< Of the state.
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct SimpleRNNCellConfig : SimpleRNNCellOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

struct LSTMCellOptions {
  ActivationFunction activation = "tanh";
  ActivationFunction recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;  ///< The forget gate's bias begins with 1.
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct LSTMCellConfig : LSTMCellOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

struct GRUCellOptions {
  ActivationFunction activation = "tanh";
  ActivationFunction recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  bool reset_after = true;  ///< The reset gate is applied after the product; two rows of bias.
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct GRUCellConfig : GRUCellOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    f.required("units", c.units);
    internal::recurrent_fields(c, f);
  }
};

namespace internal {

/// The weights of a cell with gates, and what it draws. `gates` parts of `units` columns each.
class GatedCell : public RNNCellBase {
 public:
  explicit GatedCell(std::string name);
  ~GatedCell() override;
  Tensor step(const Tensor& input, std::vector<Tensor>& states, const CallArgs& args) override;

 protected:
  /// What one call of the layer draws: a mask for all gates, one for each, or none.
  struct Masks {
    std::vector<Tensor> input, recurrent;
  };
  /// Errors: InvalidArgument for no units, or rates outside of [0, 1].
  void check(int64_t units, double dropout, double recurrent_dropout) const;
  void begin_draws(std::optional<uint64_t> seed);
  Masks draw(const Tensor& step, const Tensor& state, const CallArgs& args, double dropout,
             double recurrent_dropout, std::size_t gates);
  TrackedParts tracked_parts() const override;
  /// Of a batch of rows the product with `weight`, whose gates have masks of their own or share.
  static Tensor product(const Tensor& rows, const Tensor& weight, const std::vector<Tensor>& masks);
  /// Each step's input times the kernel, in one product. Shapes: [t, b, in] to [t, b, columns].
  static Tensor input_product(const Tensor& steps, const Tensor& kernel, const Tensor& bias,
                              const std::vector<Tensor>& masks);

  Variable kernel_, recurrent_kernel_, bias_;

 private:
  std::unique_ptr<Draws> masks_;
};

/// Shared between the cells: a class of its own because their configs differ.
template <class C>
class CellImpl : public LayerImpl<C, GatedCell> {
 public:
  explicit CellImpl(C config) : LayerImpl<C, GatedCell>(std::move(config)) {
    const C& o = this->config();
    this->check(o.units, o.dropout, o.recurrent_dropout);
    this->begin_draws(o.seed);
  }

 protected:
  /// Makes the weights. Shapes: kernel [in, columns], recurrent [units, columns].
  void make_weights(int64_t in, int64_t columns, const Shape& bias, const Initializer& bias_init) {
    const C& o = this->config();
    const DType dtype = o.dtype.variable_dtype();
    this->kernel_ = this->add_weight({.name = "kernel",
                                      .shape = {in, columns},
                                      .dtype = dtype,
                                      .initializer = o.kernel_initializer,
                                      .regularizer = o.kernel_regularizer,
                                      .constraint = o.kernel_constraint});
    this->recurrent_kernel_ = this->add_weight({.name = "recurrent_kernel",
                                                .shape = {o.units, columns},
                                                .dtype = dtype,
                                                .initializer = o.recurrent_initializer,
                                                .regularizer = o.recurrent_regularizer,
                                                .constraint = o.recurrent_constraint});
    if (!o.use_bias) return;
    this->bias_ = this->add_weight({.name = "bias",
                                    .shape = bias,
                                    .dtype = dtype,
                                    .initializer = bias_init,
                                    .regularizer = o.bias_regularizer,
                                    .constraint = o.bias_constraint});
  }
  /// What the weights are computed with.
  Tensor weight(const Variable& variable) const {
    if (!variable) return {};
    const Tensor value = variable.value();
    const DType dtype = this->config().dtype.compute_dtype();
    return value.scalar_type() == dtype ? value : value.to(dtype);
  }
  typename GatedCell::Masks draw_masks(const SequenceRun& run, const CallArgs& args,
                                       std::size_t gates) {
    const C& o = this->config();
    if (!args.training || run.steps.size(0) == 0) return {};
    return this->draw(run.steps[0], run.states[0], args, o.dropout, o.recurrent_dropout, gates);
  }
};

}  // namespace internal

/// Of SimpleRNNCell, see core.h; as the next two.
class SimpleRNNCellLayer : public internal::CellImpl<SimpleRNNCellConfig> {
 public:
  using CellImpl::CellImpl;
  Shape state_size() const override { return {config().units}; }
  void build(const Shape& input_shape) override;
  Tensor run(SequenceRun& run, const CallArgs& args) override;
};

class LSTMCellLayer : public internal::CellImpl<LSTMCellConfig> {
 public:
  using CellImpl::CellImpl;
  Shape state_size() const override { return {config().units, config().units}; }
  void build(const Shape& input_shape) override;
  Tensor run(SequenceRun& run, const CallArgs& args) override;

 private:
  bool has_node(const SequenceRun& run) const;
};

class GRUCellLayer : public internal::CellImpl<GRUCellConfig> {
 public:
  using CellImpl::CellImpl;
  Shape state_size() const override { return {config().units}; }
  void build(const Shape& input_shape) override;
  Tensor run(SequenceRun& run, const CallArgs& args) override;

 private:
  bool has_node(const SequenceRun& run) const;
  Tensor mix(const Tensor& from_input, const Tensor& state, const Masks& masks) const;
};

/// activation(x . kernel + h . recurrent_kernel + bias), which is the state, too.
class SimpleRNNCell : public Layer {
 public:
  explicit SimpleRNNCell(int64_t units, SimpleRNNCellOptions options = {});
};

/// Gates i, f, c, o in this order of columns; states h, c.
class LSTMCell : public Layer {
 public:
  explicit LSTMCell(int64_t units, LSTMCellOptions options = {});
};

/// Gates z, r, h in this order of columns.
class GRUCell : public Layer {
 public:
  explicit GRUCell(int64_t units, GRUCellOptions options = {});
};

struct StackedRNNCellsOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct StackedRNNCellsConfig : StackedRNNCellsOptions {
  std::vector<Layer> cells = {};
  static void fields(auto& c, auto&& f) { f.required("cells", c.cells); }
};

class StackedRNNCellsLayer : public LayerImpl<StackedRNNCellsConfig, RNNCellBase> {
 public:
  explicit StackedRNNCellsLayer(StackedRNNCellsConfig config);
  Shape state_size() const override;
  int64_t output_size() const override { return cells_.back()->output_size(); }
  void build(const Shape& input_shape) override;
  Tensor step(const Tensor& input, std::vector<Tensor>& states, const CallArgs& args) override;
  Tensor run(SequenceRun& run, const CallArgs& args) override;
  std::vector<Shape> state_shapes(const Shape& step) const override;
  Shape output_shape(const Shape& step) const override;
  Element nest_states(const std::vector<Tensor>& states) const override;

 private:
  /// Calls each(cell, its states), one cell after the other.
  template <class F>
  void for_each_cell(std::vector<Tensor>& states, const F& each) const;

  std::vector<RNNCellBase*> cells_;
};

/// Cells as one: the output of each is the input of the next.
class StackedRNNCells : public Layer {
 public:
  explicit StackedRNNCells(std::vector<Layer> cells, StackedRNNCellsOptions options = {});
};

namespace internal {
/// Errors: InvalidArgument for a layer that is no cell.
RNNCellBase& cell_of(const Layer& layer, const char* who);
/// The tensors of a nest, in order; none of an element that holds nothing.
std::vector<Tensor> flat_tensors(const Element& nest);
/// The loop of RNNCellBase::run: `step(t, states)` gives the output of step t.
using StepFunction = std::function<Tensor(int64_t t, std::vector<Tensor>& states)>;
Tensor run_steps(SequenceRun& run, const StepFunction& step);
}  // namespace internal

}  // namespace cohort::keras
