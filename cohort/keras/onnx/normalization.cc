// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

// A weight of the sizes along `axes`, so that it broadcasts to the input.
Tensor along(const Call& c, const Tensor& weight, const std::vector<int64_t>& axes) {
  Shape shape(c.rank(), 1);
  for (const int64_t axis : axes) {
    const auto i = static_cast<std::size_t>(axis);
    shape[i] = c.shape()[i];
    if (shape[i] == kUnknownDim) c.refuse("over an axis of unknown size");
  }
  return weight.reshape(shape);
}

// With the statistics that were learnt: a factor and a term, made in double.
Values batch_normalization(const Call& c) {
  const std::vector<int64_t> axes = c.axes("axis");
  const auto value = [&](const char* name) { return c.tensor(name).to(kFloat64); };
  Tensor factor = (value("moving_variance") + c.config.number("epsilon")).rsqrt();
  if (c.has_weight("gamma")) factor = factor * value("gamma");
  Tensor term = -value("moving_mean") * factor;
  if (c.has_weight("beta")) term = term + value("beta");
  const auto written = [&](const Tensor& x, const char* name) {
    return c.g.constant(along(c, x.to(kFloat32), axes), name);
  };
  const std::string scaled = c.g("Mul", {c.x(), written(factor, "factor")});
  return only(c.g("Add", {scaled, written(term, "term")}));
}

std::string scaled_and_shifted(const Call& c, std::string y, const std::vector<int64_t>& axes,
                               const char* scale = "gamma") {
  if (c.has_weight(scale)) {
    y = c.g("Mul", {y, c.g.constant(along(c, c.tensor(scale), axes), scale)});
  }
  if (c.has_weight("beta")) {
    y = c.g("Add", {y, c.g.constant(along(c, c.tensor("beta"), axes), "beta")});
  }
  return y;
}

// x / sqrt(mean(of^2) + epsilon).
std::string over_deviation(const Call& c, const std::string& x, const std::string& of,
                           const std::string& axes) {
  const std::string mean = c.g("ReduceMean", {c.g("Mul", {of, of}), axes});
  const std::string root =
      c.g("Sqrt", {c.g("Add", {mean, c.g.number(c.config.number("epsilon"))})});
  return c.g("Div", {x, root});
}

bool are_last(const Call& c, const std::vector<int64_t>& axes) {
  return axes.front() + static_cast<int64_t>(axes.size()) == static_cast<int64_t>(c.rank()) &&
         axes.back() + 1 == static_cast<int64_t>(c.rank());
}

Values layer_normalization(const Call& c) {
  const std::vector<int64_t> axes = c.axes("axis");
  if (are_last(c, axes) && c.has_weight("gamma") && !c.config.boolean("rms_scaling")) {
    Names inputs = {c.x(), c.weight("gamma")};
    if (c.has_weight("beta")) inputs.push_back(c.weight("beta"));
    return only(c.g("LayerNormalization", inputs,
                    {{"axis", axes.front()}, {"epsilon", c.config.number("epsilon")}}));
  }
  const std::string over = c.g.ints(axes);
  const std::string centered = c.g("Sub", {c.x(), c.g("ReduceMean", {c.x(), over})});
  const bool rms = c.config.boolean("rms_scaling");
  const std::string y = over_deviation(c, rms ? c.x() : centered, centered, over);
  return only(scaled_and_shifted(c, y, axes));
}

Values rms_normalization(const Call& c) {
  const std::vector<int64_t> axes = c.axes("axis");
  const std::string y = over_deviation(c, c.x(), c.x(), c.g.ints(axes));
  return only(scaled_and_shifted(c, y, axes, "scale"));
}

// Each group as an axis behind the batch and one of all else.
Values group_normalization(const Call& c) {
  const int64_t axis = c.axes("axis").at(0);
  const int64_t channels = c.shape().at(static_cast<std::size_t>(axis));
  const int64_t given = c.config.integer("groups"), groups = given == -1 ? channels : given;
  std::vector<int64_t> front, back(c.rank());
  for (std::size_t i = 0; i < c.rank(); ++i) front.push_back(static_cast<int64_t>(i));
  front.erase(front.begin() + axis);
  front.insert(front.begin() + 1, axis);
  for (std::size_t i = 0; i < front.size(); ++i) {
    back[static_cast<std::size_t>(front[i])] = static_cast<int64_t>(i);
  }
  const std::string x = transpose(c, c.x(), front);
  const std::string grouped = c.g("Reshape", {x, c.g.ints({0, groups, -1})});
  const std::string over = c.g.ints({2});
  const std::string centered = c.g("Sub", {grouped, c.g("ReduceMean", {grouped, over})});
  const std::string even = over_deviation(c, centered, centered, over);
  const std::string y = transpose(c, c.g("Reshape", {even, c.g("Shape", {x})}), back);
  return only(scaled_and_shifted(c, y, {axis}));
}

Values unit_normalization(const Call& c) {
  const std::string sum = c.g("ReduceSum", {c.g("Mul", {c.x(), c.x()}), c.g.ints(c.axes("axis"))});
  const std::string length = c.g("Sqrt", {c.g("Max", {sum, c.g.number(1e-24)})});
  return only(c.g("Div", {c.x(), length}));
}

}  // namespace

void add_normalizations(Conversions& all) {
  all["BatchNormalization"] = {batch_normalization};
  all["LayerNormalization"] = {layer_normalization};
  all["RMSNormalization"] = {rms_normalization};
  all["GroupNormalization"] = {group_normalization};
  all["UnitNormalization"] = {unit_normalization};
}

}  // namespace cohort::keras::internal::onnx
