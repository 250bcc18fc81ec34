// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/merging.h"

#include <ATen/ops/logical_or.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

std::vector<Shape> shapes_in(const std::string& name, const ElementSpec& inputs) {
  COHORT_CHECK_ARG(inputs.is_tuple() && inputs.size() > 0, "[", name,
                   "] expected a list of inputs, got ", inputs);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) shapes.push_back(inputs[i].leaf().shape);
  return shapes;
}

std::vector<Tensor> tensors_in(const std::string& name, const Element& inputs) {
  COHORT_CHECK_ARG(inputs.is_tuple() && inputs.size() > 0, "[", name,
                   "] expected a list of inputs, got ", inputs.spec());
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) tensors.push_back(inputs[i].tensor());
  return tensors;
}

// One for each of `count` inputs, undefined where there is none.
std::vector<Tensor> masks_in(const Element& mask, std::size_t count) {
  std::vector<Tensor> masks(count);
  if (!mask.has_value() || !mask.is_tuple()) return masks;
  for (std::size_t i = 0; i < std::min(count, mask.size()); ++i) {
    if (mask[i].has_value()) masks[i] = mask[i].tensor();
  }
  return masks;
}

// With axes of 1 behind the batch, up to `rank`.
Shape with_rank(Shape shape, std::size_t rank) {
  if (!shape.empty()) shape.insert(shape.begin() + 1, rank - shape.size(), 1);
  return shape;
}

std::size_t largest_rank(const std::vector<Shape>& shapes) {
  std::size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  return rank;
}

ElementSpec spec_of(const Shape& shape, const ElementSpec& inputs) {
  return TensorSpec{.shape = shape, .dtype = inputs[0].leaf().dtype};
}

// Folds the inputs by `op`, which a masked one has no part in.
template <class F>
Tensor fold_unmasked(const std::vector<Tensor>& inputs, const std::vector<Tensor>& masks, F op) {
  Tensor out = inputs[0];
  Tensor counts = masks[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    Tensor x = inputs[i];
    const Tensor& mask = masks[i];
    if (mask.defined()) x = at::where(mask, x, out);
    if (counts.defined()) out = at::where(counts, out, x);
    counts = mask.defined() && counts.defined() ? at::logical_or(counts, mask) : Tensor();
    out = op(out, x);
  }
  return out;
}

}  // namespace

void MergeLayer::build_nest(const ElementSpec& inputs) { compute_output_spec(inputs); }

ElementSpec MergeLayer::compute_output_spec(const ElementSpec& inputs) const {
  std::vector<Shape> shapes = shapes_in(name(), inputs);
  const std::size_t rank = largest_rank(shapes);
  Shape out(rank, 1);
  for (const Shape& given : shapes) {
    const Shape shape = with_rank(given, rank);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const bool fits = out[i] == 1 || shape[i] == 1 || out[i] == shape[i] ||
                        out[i] == kUnknownDim || shape[i] == kUnknownDim;
      COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs whose shapes broadcast, got ", inputs);
      if (out[i] == 1 || (out[i] == kUnknownDim && shape[i] != 1)) out[i] = shape[i];
    }
  }
  return spec_of(out, inputs);
}

Element MergeLayer::call_nest(const Element& inputs, const CallArgs& args) {
  std::vector<Tensor> tensors = tensors_in(name(), inputs);
  std::vector<Tensor> masks = masks_in(args.mask, tensors.size());
  int64_t rank = 0;
  for (const Tensor& x : tensors) rank = std::max(rank, x.dim());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (masks[i].defined()) masks[i] = masks[i].unsqueeze(-1);
    while (tensors[i].dim() < rank) tensors[i] = tensors[i].unsqueeze(1);
  }
  return merge(tensors, masks);
}

Element MergeLayer::compute_mask(const Element& inputs, const Element& mask) const {
  Tensor out;
  for (const Tensor& m : masks_in(mask, inputs.size())) {
    if (!m.defined()) return {};
    out = out.defined() ? at::logical_or(out, m) : m;
  }
  return out.defined() ? Element(out) : Element();
}

Tensor AddLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>&) const {
  Tensor sum = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  return sum;
}

void SubtractLayer::build_nest(const ElementSpec& inputs) {
  COHORT_CHECK_ARG(inputs.is_tuple() && inputs.size() == 2, "[", name(),
                   "] expected a list of two inputs, got ", inputs);
  MergeLayer::build_nest(inputs);
}

Tensor SubtractLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>&) const {
  COHORT_CHECK_ARG(x.size() == 2, "[", name(), "] expected a list of two inputs, got ", x.size());
  return x[0] - x[1];
}

Tensor MultiplyLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const {
  Tensor product, counts;
  bool all_masked = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tensor& mask = masks[i];
    all_masked = all_masked && mask.defined();
    const Tensor factor = mask.defined() ? at::where(mask, x[i], 1) : x[i];
    product = product.defined() ? product * factor : factor;
    if (all_masked) counts = counts.defined() ? at::logical_or(counts, mask) : mask;
  }
  return all_masked ? at::where(counts, product, 0) : product;
}

Tensor AverageLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>&) const {
  Tensor sum = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  return sum / static_cast<double>(x.size());
}

Tensor MaximumLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const {
  return fold_unmasked(x, masks,
                       [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); });
}

Tensor MinimumLayer::merge(const std::vector<Tensor>& x, const std::vector<Tensor>& masks) const {
  return fold_unmasked(x, masks,
                       [](const Tensor& a, const Tensor& b) { return at::minimum(a, b); });
}

ElementSpec ConcatenateLayer::compute_output_spec(const ElementSpec& inputs) const {
  const std::vector<Shape> shapes = shapes_in(name(), inputs);
  Shape out = shapes[0];
  const auto rank = static_cast<int64_t>(out.size());
  const int64_t axis = config().axis < 0 ? config().axis + rank : config().axis;
  COHORT_CHECK_ARG(axis >= 0 && axis < rank, "[", name(), "] expected inputs with an axis ",
                   config().axis, ", got ", inputs);
  const auto along = static_cast<std::size_t>(axis);
  for (std::size_t k = 1; k < shapes.size(); ++k) {
    const Shape& shape = shapes[k];
    bool fits = shape.size() == out.size();
    for (std::size_t i = 0; fits && i < out.size(); ++i) {
      const bool known = out[i] != kUnknownDim && shape[i] != kUnknownDim;
      if (i == along) {
        out[i] = known ? out[i] + shape[i] : kUnknownDim;
      } else {
        fits = !known || out[i] == shape[i];
        if (!known) out[i] = std::max(out[i], shape[i]);  // kUnknownDim is the least
      }
    }
    COHORT_CHECK_ARG(fits, "[", name(), "] expected shapes that are equal but along axis ",
                     config().axis, ", got ", inputs);
  }
  return spec_of(out, inputs);
}

Element ConcatenateLayer::call_nest(const Element& inputs, const CallArgs&) {
  return concat(tensors_in(name(), inputs), config().axis);
}

// Of each input its own, or that all counts; joined, what any feature counts.
Element ConcatenateLayer::compute_mask(const Element& inputs, const Element& mask) const {
  const std::vector<Tensor> tensors = tensors_in(name(), inputs);
  std::vector<Tensor> masks = masks_in(mask, tensors.size());
  const auto is_none = [](const Tensor& m) { return !m.defined(); };
  if (std::ranges::all_of(masks, is_none)) return {};
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const Tensor& x = tensors[i];
    if (!masks[i].defined()) {
      masks[i] = ones(shape_of(x), kBool);
    } else if (masks[i].dim() < x.dim()) {
      masks[i] = masks[i].unsqueeze(-1).expand(x.sizes());
    }
  }
  return concat(masks, config().axis).any(-1);
}

Config DotAxes::serialize() const {
  if (!is_pair) return first;
  return Config::List{first, second};
}

DotAxes DotAxes::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  COHORT_CHECK_ARG(config.list().size() == 2, "[config] expected an axis or two, got ", config);
  return {config.list()[0].integer(), config.list()[1].integer()};
}

std::pair<int64_t, int64_t> DotLayer::axes_of(const Shape& a, const Shape& b) const {
  const DotAxes& given = config().axes;
  const auto from_front = [&](int64_t axis, const Shape& shape) {
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t counted = axis < 0 ? axis + rank : axis;
    COHORT_CHECK_ARG(counted > 0 && counted < rank, "[", name(),
                     "] expected axes after the batch, got ", axis, " of shape ", bracketed(shape));
    return counted;
  };
  const int64_t i = from_front(given.first, a), j = from_front(given.second, b);
  const int64_t n = a[static_cast<std::size_t>(i)], m = b[static_cast<std::size_t>(j)];
  COHORT_CHECK_ARG(n == m || n == kUnknownDim || m == kUnknownDim, "[", name(),
                   "] expected equal sizes of axes ", i, " and ", j, ", got ", bracketed(a),
                   " and ", bracketed(b));
  return {i, j};
}

ElementSpec DotLayer::compute_output_spec(const ElementSpec& inputs) const {
  const std::vector<Shape> shapes = shapes_in(name(), inputs);
  COHORT_CHECK_ARG(shapes.size() == 2, "[", name(), "] expected two inputs, got ", inputs);
  const auto [i, j] = axes_of(shapes[0], shapes[1]);
  Shape out = shapes[0], rest = shapes[1];
  out.erase(out.begin() + i);
  rest.erase(rest.begin() + j);
  out.insert(out.end(), rest.begin() + 1, rest.end());
  if (out.size() == 1) out.push_back(1);
  return spec_of(out, inputs);
}

Element DotLayer::call_nest(const Element& inputs, const CallArgs&) {
  const std::vector<Tensor> both = tensors_in(name(), inputs);
  COHORT_CHECK_ARG(both.size() == 2, "[", name(), "] expected two inputs, got ", both.size());
  const auto [i, j] = axes_of(shape_of(both[0]), shape_of(both[1]));
  Tensor a = both[0].movedim(i, -1), b = both[1].movedim(j, 1);
  if (config().normalize) {
    // Keras's bound: 1e-7 for what has no length.
    a = a * a.square().sum(-1, true).clamp_min(1e-14).rsqrt();
    b = b * b.square().sum(1, true).clamp_min(1e-14).rsqrt();
  }
  std::vector<int64_t> shape(a.sizes().begin(), a.sizes().end() - 1);
  shape.insert(shape.end(), b.sizes().begin() + 2, b.sizes().end());
  if (shape.size() == 1) shape.push_back(1);
  const int64_t rows = a.size(0), n = a.size(-1);
  // Not -1, which says nothing of no rows.
  const int64_t left = c10::multiply_integers(a.sizes().begin() + 1, a.sizes().end() - 1);
  const int64_t right = c10::multiply_integers(b.sizes().begin() + 2, b.sizes().end());
  return a.reshape({rows, left, n}).matmul(b.reshape({rows, n, right})).reshape(shape);
}

Dot::Dot(DotAxes axes, DotOptions options)
    : Layer(std::make_shared<DotLayer>(DotConfig{std::move(options), axes})) {}

namespace layers {
namespace {

Tensor merged(const Layer& layer, const std::vector<Tensor>& inputs) {
  return layer(Element::tuple({inputs.begin(), inputs.end()})).tensor();
}
KerasTensor merged(const Layer& layer, const std::vector<KerasTensor>& inputs) {
  return layer(KerasTensor::tuple(inputs));
}

}  // namespace

Tensor add(const std::vector<Tensor>& inputs) { return merged(Add(), inputs); }
Tensor subtract(const std::vector<Tensor>& inputs) { return merged(Subtract(), inputs); }
Tensor multiply(const std::vector<Tensor>& inputs) { return merged(Multiply(), inputs); }
Tensor average(const std::vector<Tensor>& inputs) { return merged(Average(), inputs); }
Tensor maximum(const std::vector<Tensor>& inputs) { return merged(Maximum(), inputs); }
Tensor minimum(const std::vector<Tensor>& inputs) { return merged(Minimum(), inputs); }
Tensor concatenate(const std::vector<Tensor>& inputs, int64_t axis) {
  return merged(Concatenate({.axis = axis}), inputs);
}
Tensor dot(const std::vector<Tensor>& inputs, DotAxes axes, bool normalize) {
  return merged(Dot(axes, {.normalize = normalize}), inputs);
}

KerasTensor add(const std::vector<KerasTensor>& inputs) { return merged(Add(), inputs); }
KerasTensor subtract(const std::vector<KerasTensor>& inputs) { return merged(Subtract(), inputs); }
KerasTensor multiply(const std::vector<KerasTensor>& inputs) { return merged(Multiply(), inputs); }
KerasTensor average(const std::vector<KerasTensor>& inputs) { return merged(Average(), inputs); }
KerasTensor maximum(const std::vector<KerasTensor>& inputs) { return merged(Maximum(), inputs); }
KerasTensor minimum(const std::vector<KerasTensor>& inputs) { return merged(Minimum(), inputs); }
KerasTensor concatenate(const std::vector<KerasTensor>& inputs, int64_t axis) {
  return merged(Concatenate({.axis = axis}), inputs);
}
KerasTensor dot(const std::vector<KerasTensor>& inputs, DotAxes axes, bool normalize) {
  return merged(Dot(axes, {.normalize = normalize}), inputs);
}

}  // namespace layers
}  // namespace cohort::keras
