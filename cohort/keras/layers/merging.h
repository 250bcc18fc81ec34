// SPDX-License-Identifier: Apache-2.0
//
// Layers of several inputs, with the names, options and defaults of Keras 3.
//
// Tensor sum = keras::layers::add({x, y}), or a layer of a functional model: keras::Add()({a, b}).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct MergeOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto&, auto&&) {}
};

/// What layers have in common that compute element by element of inputs whose shapes broadcast:
/// those with fewer axes get axes of 1 after the batch.
class MergeLayer : public LayerImpl<MergeOptions, NestLayer> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  void build_nest(const ElementSpec& inputs) override;
  Element call_nest(const Element& inputs, const CallArgs& args) final;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  /// True where any input's mask is; no mask if one of them has none.
  Element compute_mask(const Element& inputs, const Element& mask) const override;

 protected:
  /// Of inputs with equally many axes. `masks` are theirs, with a last axis of 1; undefined:
  /// all count.
  virtual Tensor merge(const std::vector<Tensor>& inputs,
                       const std::vector<Tensor>& masks) const = 0;
};

struct AddLayer : MergeLayer {
  using MergeLayer::MergeLayer;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

/// Of two inputs.
struct SubtractLayer : MergeLayer {
  using MergeLayer::MergeLayer;
  void build_nest(const ElementSpec& inputs) override;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

/// What a mask leaves out counts as 1 where another input counts, else as 0.
struct MultiplyLayer : MergeLayer {
  using MergeLayer::MergeLayer;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

struct AverageLayer : MergeLayer {
  using MergeLayer::MergeLayer;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

/// Where masks leave out one input, of the others.
struct MaximumLayer : MergeLayer {
  using MergeLayer::MergeLayer;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

struct MinimumLayer : MergeLayer {
  using MergeLayer::MergeLayer;

 protected:
  Tensor merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const override;
};

/// Shapes: of tensors that broadcast. Errors: InvalidArgument for one tensor that is not in a list,
///         and for shapes that do not fit.
using Add = Handle<AddLayer>;
using Subtract = Handle<SubtractLayer>;
using Multiply = Handle<MultiplyLayer>;
using Average = Handle<AverageLayer>;
using Maximum = Handle<MaximumLayer>;
using Minimum = Handle<MinimumLayer>;

struct ConcatenateOptions {
  int64_t axis = -1;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("axis", c.axis); }
};

class ConcatenateLayer : public LayerImpl<ConcatenateOptions, NestLayer> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  void build_nest(const ElementSpec& inputs) override { compute_output_spec(inputs); }
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Element compute_mask(const Element& inputs, const Element& mask) const override;
};

/// Shapes: equal but along the axis.
using Concatenate = Handle<ConcatenateLayer>;

/// One axis of both inputs, or one of each: 1, or {2, 1}.
struct DotAxes {
  int64_t first = -1;
  int64_t second = -1;
  bool is_pair = false;

  DotAxes() = default;
  DotAxes(int64_t both) : first(both), second(both) {}  // NOLINT: implicit by design
  DotAxes(int64_t of_first, int64_t of_second)
      : first(of_first), second(of_second), is_pair(true) {}
  bool operator==(const DotAxes&) const = default;
  Config serialize() const;
  static DotAxes deserialize(const Config& config);
};

struct DotOptions {
  bool normalize = false;  ///< Of vectors of length 1: the cosine.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct DotConfig : DotOptions {
  DotAxes axes = {};
  static void fields(auto& c, auto&& f) {
    f.required("axes", c.axes);
    f("normalize", c.normalize);
  }
};

class DotLayer : public LayerImpl<DotConfig, NestLayer> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  void build_nest(const ElementSpec& inputs) override { compute_output_spec(inputs); }
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Element compute_mask(const Element&, const Element&) const override { return {}; }

 private:
  /// Counted from the front. Errors: InvalidArgument for the batch's, and for sizes that differ.
  std::pair<int64_t, int64_t> axes_of(const Shape& a, const Shape& b) const;
};

/// Products of two inputs, row by row of the batch.
/// Shapes: [b, x..., n], [b, n, y...] to [b, x..., y...], of whichever axes; [b, 1] of two vectors.
class Dot : public Layer {
 public:
  explicit Dot(DotAxes axes, DotOptions options = {});
};

/// The functions: a layer, called once. TF: keras.layers.add, ...
namespace layers {
Tensor add(const std::vector<Tensor>& inputs);
Tensor subtract(const std::vector<Tensor>& inputs);
Tensor multiply(const std::vector<Tensor>& inputs);
Tensor average(const std::vector<Tensor>& inputs);
Tensor maximum(const std::vector<Tensor>& inputs);
Tensor minimum(const std::vector<Tensor>& inputs);
Tensor concatenate(const std::vector<Tensor>& inputs, int64_t axis = -1);
Tensor dot(const std::vector<Tensor>& inputs, DotAxes axes = -1, bool normalize = false);
/// The same in a functional model, of which the layer becomes a part.
KerasTensor add(const std::vector<KerasTensor>& inputs);
KerasTensor subtract(const std::vector<KerasTensor>& inputs);
KerasTensor multiply(const std::vector<KerasTensor>& inputs);
KerasTensor average(const std::vector<KerasTensor>& inputs);
KerasTensor maximum(const std::vector<KerasTensor>& inputs);
KerasTensor minimum(const std::vector<KerasTensor>& inputs);
KerasTensor concatenate(const std::vector<KerasTensor>& inputs, int64_t axis = -1);
KerasTensor dot(const std::vector<KerasTensor>& inputs, DotAxes axes = -1, bool normalize = false);
}  // namespace layers

}  // namespace cohort::keras
