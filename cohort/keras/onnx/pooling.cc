// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/onnx/convolution.h"

namespace cohort::keras::internal::onnx {
namespace {

using Sizes = std::vector<int64_t>;

int64_t first_space(const Call& c) { return c.channels_first() ? 2 : 1; }

Sizes space_axes(const Call& c) {
  Sizes axes;
  for (std::size_t i = 0; i + 2 < c.rank(); ++i) {
    axes.push_back(static_cast<int64_t>(i) + first_space(c));
  }
  return axes;
}

Values pooled(const Call& c, const char* op) {
  const std::size_t n = c.rank() - 2;
  Window window{.sizes = c.numbers("pool_size", n), .strides = {}};
  const bool is_given = !c.config.at("strides").is_null();
  window.strides = is_given ? c.numbers("strides", n) : window.sizes;
  window.padding = c.config.text("padding");
  Shape space;
  for (const int64_t axis : space_axes(c)) {
    space.push_back(c.shape()[static_cast<std::size_t>(axis)]);
  }
  const Attributes how = window_attributes(c, window, space);
  if (c.channels_first()) return only(c.g(op, {c.x()}, how));
  const std::string y = c.g(op, {channels_to_front(c, c.x(), c.rank())}, how);
  return only(channels_to_back(c, y, c.rank()));
}

Values max_pooling(const Call& c) { return pooled(c, "MaxPool"); }
Values average_pooling(const Call& c) { return pooled(c, "AveragePool"); }

Values reduced(const Call& c, const char* op) {
  const Attributes how = {{"keepdims", int64_t{c.config.boolean("keepdims")}}};
  return only(c.g(op, {c.x(), c.g.ints(space_axes(c))}, how));
}

Values global_max(const Call& c) { return reduced(c, "ReduceMax"); }

// Of a series with a mask: of the steps that count.
Values global_average(const Call& c) {
  if (c.in[0].mask.empty() || c.rank() != 3) return reduced(c, "ReduceMean");
  const std::string counts =
      c.g.cast(c.g("Unsqueeze", {c.in[0].mask, c.g.ints({c.channels_first() ? 1 : 2})}), kFloat32);
  const Attributes how = {{"keepdims", int64_t{c.config.boolean("keepdims")}}};
  const std::string axes = c.g.ints(space_axes(c));
  const std::string sum = c.g("ReduceSum", {c.g("Mul", {c.x(), counts}), axes}, how);
  return only(c.g("Div", {sum, c.g("ReduceSum", {counts, axes}, how)}));
}

// Window by window along one axis after the other.
Values adaptive(const Call& c, const char* op) {
  const Sizes axes = space_axes(c), sizes = c.numbers("output_size", axes.size());
  std::string y = c.x();
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const int64_t n = c.shape()[static_cast<std::size_t>(axes[k])], to = sizes[k];
    if (n == kUnknownDim) c.refuse("over an axis of unknown size");
    Names parts;
    for (int64_t i = 0; i < to; ++i) {
      const std::string part = slice(c, y, axes[k], i * n / to, ((i + 1) * n + to - 1) / to);
      parts.push_back(c.g(op, {part, c.g.ints({axes[k]})}));
    }
    y = c.g("Concat", parts, {{"axis", axes[k]}});
  }
  return only(y);
}

Values adaptive_max(const Call& c) { return adaptive(c, "ReduceMax"); }
Values adaptive_average(const Call& c) { return adaptive(c, "ReduceMean"); }

}  // namespace

void add_pooling(Conversions& all) {
  for (const std::string n : {"1D", "2D", "3D"}) {
    all["MaxPooling" + n] = {max_pooling};
    all["AveragePooling" + n] = {average_pooling};
    all["GlobalMaxPooling" + n] = {global_max, true};
    all["GlobalAveragePooling" + n] = {global_average, true};
    all["AdaptiveMaxPooling" + n] = {adaptive_max};
    all["AdaptiveAveragePooling" + n] = {adaptive_average};
  }
}

}  // namespace cohort::keras::internal::onnx
