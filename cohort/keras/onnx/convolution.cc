// SPDX-License-Identifier: Apache-2.0
//
// Convolutions: ONNX has channels as the first axis behind the batch, and filters as the first one.
#include <algorithm>

#include "cohort/keras/onnx/convolution.h"

namespace cohort::keras::internal::onnx {
namespace {

using Sizes = std::vector<int64_t>;

// [k..., in, out] as [out, in, k...].
Tensor filters_first(const Tensor& kernel) {
  const int64_t rank = kernel.dim();
  Sizes order = {rank - 1, rank - 2};
  for (int64_t i = 0; i < rank - 2; ++i) order.push_back(i);
  return kernel.permute(order);
}

// [k..., in, times] as [in * times, 1, k...].
Tensor each_channel_alone(const Tensor& kernel) {
  const int64_t rank = kernel.dim();
  Sizes order = {rank - 2, rank - 1};
  for (int64_t i = 0; i < rank - 2; ++i) order.push_back(i);
  return kernel.permute(order).flatten(0, 1).unsqueeze(1);
}

// What the layer does with channels in front, on inputs as they are.
template <class F>
std::string with_channels_in_front(const Call& c, F compute) {
  if (c.channels_first()) return compute(c.x());
  return channels_to_back(c, compute(channels_to_front(c, c.x(), c.rank())), c.rank());
}

Sizes space_of(const Call& c) {
  const Shape& shape = c.shape();
  if (c.channels_first()) return {shape.begin() + 2, shape.end()};
  return {shape.begin() + 1, shape.end() - 1};
}

Window window_of(const Call& c) {
  const std::size_t space = c.rank() - 2;
  return {.sizes = c.numbers("kernel_size", space),
          .strides = c.numbers("strides", space),
          .dilations = c.numbers("dilation_rate", space),
          .padding = c.config.text("padding")};
}

std::string biased(const Call& c, const Tensor& kernel, const std::string& x, const Attributes& how,
                   const char* op = "Conv") {
  Names inputs = {x, c.g.constant(kernel, "kernel")};
  if (c.has_weight("bias")) inputs.push_back(c.weight("bias"));
  return c.g(op, inputs, how);
}

Values activated(const Call& c, const std::string& y) {
  return only(activate(c, c.config.at("activation"), y));
}

Values convolution(const Call& c) {
  Attributes how = window_attributes(c, window_of(c), space_of(c));
  how.emplace_back("group", c.config.integer("groups"));
  return activated(c, with_channels_in_front(c, [&](const std::string& x) {
                     return biased(c, filters_first(c.tensor("kernel")), x, how);
                   }));
}

int64_t channels_of(const Call& c) {
  return c.channels_first() ? c.shape().at(1) : c.shape().back();
}

Values depthwise(const Call& c) {
  Attributes how = window_attributes(c, window_of(c), space_of(c));
  how.emplace_back("group", channels_of(c));
  return activated(c, with_channels_in_front(c, [&](const std::string& x) {
                     return biased(c, each_channel_alone(c.tensor("kernel")), x, how);
                   }));
}

Values separable(const Call& c) {
  Attributes how = window_attributes(c, window_of(c), space_of(c));
  how.emplace_back("group", channels_of(c));
  return activated(
      c, with_channels_in_front(c, [&](const std::string& x) {
        const Tensor each = each_channel_alone(c.tensor("depthwise_kernel"));
        const std::string y = c.g("Conv", {x, c.g.constant(each, "depthwise_kernel")}, how);
        return biased(c, filters_first(c.tensor("pointwise_kernel")), y, {});
      }));
}

// As ConvTransposeLayer: half of what is too much is cut off in front.
Values transposed(const Call& c) {
  const Window w = window_of(c);
  const std::size_t space = w.sizes.size();
  const Config& given = c.config.at("output_padding");
  const Sizes more = given.is_null() ? Sizes() : c.numbers("output_padding", space);
  Sizes before, after, added;
  for (std::size_t i = 0; i < space; ++i) {
    const int64_t extent = (w.sizes[i] - 1) * w.dilations[i] + 1;
    int64_t kept = std::max(extent, w.strides[i]);  // behind all strides but the last one
    if (!more.empty()) kept = extent + more[i];
    if (w.padding == "same") kept = more.empty() ? w.strides[i] : extent % 2 + more[i];
    const int64_t cut = std::max<int64_t>(0, extent - kept);
    before.push_back(cut / 2);
    after.push_back(cut - cut / 2);
    added.push_back(std::max<int64_t>(0, kept - extent));
  }
  before.insert(before.end(), after.begin(), after.end());
  const Attributes how = {{"kernel_shape", w.sizes},
                          {"strides", w.strides},
                          {"dilations", w.dilations},
                          {"pads", before},
                          {"output_padding", added}};
  // [k..., out, in] as [in, out, k...].
  return activated(c, with_channels_in_front(c, [&](const std::string& x) {
                     return biased(c, filters_first(c.tensor("kernel")), x, how, "ConvTranspose");
                   }));
}

}  // namespace

Attributes window_attributes(const Call& c, const Window& w, const Shape& space) {
  Attributes how = {{"kernel_shape", w.sizes}, {"strides", w.strides}};
  if (!w.dilations.empty()) how.emplace_back("dilations", w.dilations);
  if (w.padding == "valid") return how;
  Sizes before, after;
  for (std::size_t i = 0; i < w.sizes.size(); ++i) {
    const int64_t dilation = w.dilations.empty() ? 1 : w.dilations[i];
    const int64_t extent = (w.sizes[i] - 1) * dilation + 1, stride = w.strides[i];
    if (w.padding == "causal") {
      before.push_back(extent - 1);
      after.push_back(0);
      continue;
    }
    const int64_t n = space[i];
    if (n == kUnknownDim && stride > 1) c.refuse("with strides over an axis of unknown size");
    const int64_t steps = stride == 1 ? n : (n + stride - 1) / stride;
    const int64_t all =
        stride == 1 ? extent - 1 : std::max<int64_t>(0, (steps - 1) * stride + extent - n);
    before.push_back(all / 2);
    after.push_back(all - all / 2);
  }
  before.insert(before.end(), after.begin(), after.end());
  how.emplace_back("pads", before);
  return how;
}

void add_convolutions(Conversions& all) {
  for (const std::string n : {"1D", "2D", "3D"}) {
    all["Conv" + n] = {convolution};
    all["Conv" + n + "Transpose"] = {transposed};
    if (n == "3D") continue;
    all["DepthwiseConv" + n] = {depthwise};
    all["SeparableConv" + n] = {separable};
  }
}

}  // namespace cohort::keras::internal::onnx
