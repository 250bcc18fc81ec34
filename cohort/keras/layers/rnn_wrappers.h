// SPDX-License-Identifier: Apache-2.0
//
// Layers around other layers, over sequences, with the names, options and defaults of Keras 3.
//
//   keras::Bidirectional(keras::LSTM(32, {.return_sequences = true}));
//   keras::TimeDistributed(keras::Dense(8));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layers/recurrent.h"

namespace cohort::keras {

struct BidirectionalOptions {
  /// How the two outputs become one: "concat", "sum", "mul" or "ave"; unset: they stay two.
  std::optional<std::string> merge_mode = "concat";
  std::optional<Layer> backward_layer = {};  ///< Unset: as the layer, in reverse.
  /// Initial weights of both layers, those of the first one first.
  std::vector<Tensor> weights = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct BidirectionalConfig : BidirectionalOptions {
  std::optional<Layer> layer = {};
  static void fields(auto& c, auto&& f) {
    f("merge_mode", c.merge_mode);
    f.required("layer", c.layer);
    f("backward_layer", c.backward_layer);
  }
};

/// Of Bidirectional, see core.h; as the next one.
class BidirectionalLayer : public LayerImpl<BidirectionalConfig> {
 public:
  explicit BidirectionalLayer(BidirectionalConfig config);
  void build(const Shape& input_shape) override;
  void build_nest(const ElementSpec& inputs) override { build(inputs[0].leaf().shape); }
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element& mask) const override;
  Config get_config() const override;
  const Layer& forward_layer() const { return *forward_; }
  const Layer& backward_layer() const { return *backward_; }
  /// TF: Bidirectional.reset_state.
  void reset_state() const;

 private:
  RecurrentBase& of(const Layer& layer) const { return static_cast<RecurrentBase&>(layer.base()); }
  Tensor merged(const Tensor& forward, const Tensor& backward) const;

  std::optional<Layer> forward_, backward_;
};

/// A recurrent layer over the steps, and another one over them from the end, whose outputs stand at
/// the steps they belong to. Both are new layers of the config of the one that is given.
/// With return_state the states of the first follow the output, then those of the second.
/// Errors: InvalidArgument for a layer that is not recurrent, and for two that do not fit;
///         Unimplemented for one that has no config. TF: keras.layers.Bidirectional.
class Bidirectional : public Layer {
 public:
  explicit Bidirectional(Layer layer, BidirectionalOptions options = {});
  BidirectionalLayer& layer() const { return static_cast<BidirectionalLayer&>(base()); }
};

struct TimeDistributedOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct TimeDistributedConfig : TimeDistributedOptions {
  std::optional<Layer> layer = {};
  static void fields(auto& c, auto&& f) { f.required("layer", c.layer); }
};

class TimeDistributedLayer : public LayerImpl<TimeDistributedConfig> {
 public:
  explicit TimeDistributedLayer(TimeDistributedConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  bool supports_masking() const override { return true; }

 private:
  const Layer& layer() const { return *config().layer; }

  bool at_once_ = false;
};

/// A layer over every step of a sequence: of a layer of Keras whose rows do not see each other all
/// steps at once, of others (BatchNormalization, layers of a program) one after the other.
/// Shapes: [b, t, ...] to [b, t, what the layer makes of the rest]. TF:
/// keras.layers.TimeDistributed.
class TimeDistributed : public Layer {
 public:
  explicit TimeDistributed(Layer layer, TimeDistributedOptions options = {});
};

}  // namespace cohort::keras
