// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/windows.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras::internal {

void read_sizes(const Config& config, int64_t* sizes, std::size_t count) {
  const auto size_in = [&](std::size_t axis) {
    if (config.is_number()) return config.integer();
    COHORT_CHECK_ARG(config.list().size() == count, "[config] expected ", count, " sizes, got ",
                     config);
    return config.list()[axis].integer();
  };
  for (std::size_t axis = 0; axis < count; ++axis) sizes[axis] = size_in(axis);
}

int64_t Window::outputs(int64_t n) const {
  if (n == kUnknownDim) return kUnknownDim;
  if (padding != Padding::kValid) return (n + stride - 1) / stride;
  return n < extent() ? 0 : (n - extent()) / stride + 1;
}

std::array<int64_t, 2> Window::around(int64_t n) const {
  if (padding == Padding::kValid) return {0, 0};
  if (padding == Padding::kCausal) return {extent() - 1, 0};
  const int64_t total = std::max<int64_t>(0, (outputs(n) - 1) * stride + extent() - n);
  return {total / 2, total - total / 2};
}

WindowBox::WindowBox(std::span<const Window> axes) : rank_(static_cast<int>(axes.size())) {
  std::ranges::copy(axes, axes_.begin());
}

WindowBox WindowBox::lifted() const {
  std::vector<Window> all = {Window{}};
  all.insert(all.end(), axes().begin(), axes().end());
  return WindowBox(all);
}

bool WindowBox::needs_padding(const Tensor& x) const {
  for (int axis = 0; axis < rank_; ++axis) {
    if ((*this)[axis].around(x.size(axis + 1)) != std::array<int64_t, 2>{0, 0}) return true;
  }
  return false;
}

Tensor WindowBox::pad(const Tensor& x, double value) const {
  if (!needs_padding(x)) return x;
  std::vector<int64_t> around = {0, 0};  // of the channels; the last axis comes first
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    const auto [before, after] = (*this)[axis].around(x.size(axis + 1));
    around.insert(around.end(), {before, after});
  }
  return at::constant_pad_nd(x, around, value);
}

Tensor WindowBox::crop(const Tensor& padded, const Tensor& like) const {
  Tensor out = padded;
  for (int axis = 0; axis < rank_; ++axis) {
    const int64_t n = like.size(axis + 1);
    out = out.narrow(axis + 1, (*this)[axis].around(n)[0], n);
  }
  return out;
}

// Products of two stay far from overflowing.
constexpr int64_t kMostOfWindow = INT32_MAX;

template <int N>
WindowBox make_window(const std::string& who, const Sizes<N>& size, const Sizes<N>& strides,
                      const Sizes<N>& dilation, const std::string& padding) {
  const auto positive = [&](const Sizes<N>& sizes, const char* what) {
    COHORT_CHECK_ARG(std::ranges::min(sizes.each) > 0, "[", who, "] expected ", what, " > 0, got ",
                     sizes);
    COHORT_CHECK_ARG(std::ranges::max(sizes.each) <= kMostOfWindow, "[", who, "] expected ", what,
                     " up to ", kMostOfWindow, ", got ", sizes);
  };
  positive(size, "a window size");
  positive(strides, "strides");
  positive(dilation, "a dilation rate");
  const bool causal = padding == "causal" && N == 1;
  COHORT_CHECK_ARG(padding == "valid" || padding == "same" || causal, "[", who,
                   "] expected padding valid or same", N == 1 ? " or causal" : "", ", got ",
                   padding);
  const Padding mode = causal              ? Padding::kCausal
                       : padding == "same" ? Padding::kSame
                                           : Padding::kValid;
  std::vector<Window> axes;
  for (std::size_t i = 0; i < N; ++i) axes.push_back({size[i], strides[i], dilation[i], mode});
  return WindowBox(axes);
}

template WindowBox make_window(const std::string&, const Size1D&, const Size1D&, const Size1D&,
                               const std::string&);
template WindowBox make_window(const std::string&, const Size2D&, const Size2D&, const Size2D&,
                               const std::string&);
template WindowBox make_window(const std::string&, const Size3D&, const Size3D&, const Size3D&,
                               const std::string&);

bool is_channels_first(const std::string& who, const std::string& data_format) {
  COHORT_CHECK_ARG(data_format == "channels_last" || data_format == "channels_first", "[", who,
                   "] expected data_format channels_last or channels_first, got ", data_format);
  return data_format == "channels_first";
}

Tensor to_channels_first(const Tensor& x) { return x.movedim(-1, 1); }
Tensor to_channels_last(const Tensor& x) { return x.movedim(1, -1); }

DataLayout::DataLayout(const std::string& who, const Shape& shape, int rank, bool channels_first)
    : channels(channels_first ? 1 : static_cast<std::size_t>(rank) + 1),
      first(channels_first ? 2 : 1) {
  const std::size_t axes = static_cast<std::size_t>(rank) + 2;
  COHORT_CHECK_ARG(shape.size() == axes, "[", who, "] expected inputs with ", axes,
                   " axes, got shape ", bracketed(shape));
}

Shape output_shape(const std::string& who, const WindowBox& window, const Shape& input,
                   int64_t channels, bool channels_first) {
  const DataLayout layout(who, input, window.rank(), channels_first);
  Shape out = input;
  out[layout.channels] = channels;
  for (int axis = 0; axis < window.rank(); ++axis) {
    const std::size_t i = layout.first + static_cast<std::size_t>(axis);
    out[i] = window[axis].outputs(input[i]);
    COHORT_CHECK_ARG(out[i] != 0 || input[i] == 0, "[", who, "] expected at least ",
                     window[axis].extent(), " along axis ", i, ", got shape ", bracketed(input));
  }
  return out;
}

}  // namespace cohort::keras::internal
