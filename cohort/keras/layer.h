// SPDX-License-Identifier: Apache-2.0
//
// Layers: the handle that programs pass around, and the base class to write one.
//
//   struct Scale : keras::LayerBase {
//     Variable gain;
//     void build(const Shape& in) override {
//       gain = add_weight({.name = "gain", .shape = {in.back()}, .initializer = "ones"});
//     }
//     Tensor call(const Tensor& x, const keras::CallArgs&) override { return x * gain; }
//   };
//   keras::Sequential model({keras::Dense(64), std::make_shared<Scale>()});
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cohort/keras/initializers.h"
#include "cohort/keras/regularizers.h"
#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort::keras {

class Layer;

/// What a call is told besides its input.
struct CallArgs {
  bool training = false;
};

struct WeightOptions {
  std::string name = {};
  Shape shape = {};
  DType dtype = kFloat32;
  Initializer initializer = "glorot_uniform";
  Regularizer regularizer = {};
  bool trainable = true;
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kMean;
};

/// Derive to write a layer. The object is shared by all replicas: call() runs on all their threads
/// at once and keeps state only in variables. TF: keras.layers.Layer.
class LayerBase {
 public:
  explicit LayerBase(std::string name = {});  ///< Empty: set from the class, "dense_1".
  virtual ~LayerBase() = default;
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

  /// Makes the weights; runs once, cross-replica, in the scope the layer is used in.
  /// Shapes: input_shape[0] is kUnknownDim.
  virtual void build(const Shape& input_shape);
  virtual Tensor call(const Tensor& input, const CallArgs& args) = 0;
  /// Shapes: in and out with kUnknownDim for the batch. Default: the input's.
  virtual Shape compute_output_shape(const Shape& input_shape) const;
  /// The class name in Keras's spelling, e.g. "Dense"; heads the column of summary().
  virtual std::string class_name() const = 0;

  /// call() after building on the first use. Order: the first call in a replica is a merge point.
  /// Errors: InvalidArgument that names the layer.
  Tensor operator()(const Tensor& input, const CallArgs& args = {});
  /// Builds now, cross-replica. Does nothing the second time.
  void ensure_built(const Shape& input_shape);
  bool built() const { return built_.load(std::memory_order_acquire); }

  /// Lists of the layer, valid until it changes: no copy per step. Weights of sub-layers count.
  std::span<const Variable> variables() const;
  std::span<const Variable> trainable_variables() const;
  std::span<const Variable> non_trainable_variables() const;
  /// Sum of the weights' penalties; undefined without regularizers.
  Tensor regularization_loss() const;

  bool trainable() const { return trainable_; }
  /// Freezes or thaws this layer and its sub-layers. Takes effect for models at compile().
  void set_trainable(bool on);
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// In the order they were added.
  const std::vector<Layer>& sub_layers() const { return sub_layers_; }

 protected:
  /// Makes a variable named "layer/weight"; for build().
  Variable add_weight(const WeightOptions& options);
  /// Tracks a sub-layer and returns it.
  template <std::derived_from<Layer> L>
  L add(std::string name, L layer);
  void track(Layer layer);
  /// Lists change: sub-layers were added, or trainable was set.
  void refresh_lists() const;

 private:
  struct OwnWeight {
    Variable variable;
    Regularizer regularizer;
    bool trainable = true;
  };
  void collect(std::vector<Variable>& all, std::vector<Variable>& trainable,
               std::vector<Variable>& frozen, bool parent_trainable) const;

  std::string name_;
  bool trainable_ = true;
  std::atomic<bool> built_{false};
  std::vector<OwnWeight> weights_;
  std::vector<Layer> sub_layers_;
  mutable std::mutex lists_mutex_;
  mutable std::atomic<bool> lists_fresh_{false};
  mutable std::vector<Variable> all_, trainable_list_, frozen_;
};

/// Shared handle to a layer; a copy is the same layer.
class Layer {
 public:
  template <std::derived_from<LayerBase> L>
  Layer(std::shared_ptr<L> layer) : layer_(std::move(layer)) {}  // NOLINT: implicit by design

  Tensor operator()(const Tensor& input, const CallArgs& args = {}) const {
    return (*layer_)(input, args);
  }
  LayerBase& base() const { return *layer_; }
  const std::string& name() const { return layer_->name(); }
  std::span<const Variable> variables() const { return layer_->variables(); }
  std::span<const Variable> trainable_variables() const { return layer_->trainable_variables(); }

 protected:
  Layer() = default;
  std::shared_ptr<LayerBase> layer_;
};

template <std::derived_from<Layer> L>
L LayerBase::add(std::string name, L layer) {
  layer.base().set_name(std::move(name));
  track(layer);
  return layer;
}

}  // namespace cohort::keras
