// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/windows.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras::internal {

int64_t Window::outputs(int64_t n) const {
  if (n == kUnknownDim) return kUnknownDim;
  if (same) return (n + stride - 1) / stride;
  return n < extent() ? 0 : (n - extent()) / stride + 1;
}

std::array<int64_t, 2> Window::padding(int64_t n) const {
  if (!same) return {0, 0};
  const int64_t total = std::max<int64_t>(0, (outputs(n) - 1) * stride + extent() - n);
  return {total / 2, total - total / 2};
}

bool Window2D::needs_padding(const Tensor& x) const {
  const std::array<int64_t, 2> none = {0, 0};
  return rows.padding(x.size(1)) != none || columns.padding(x.size(2)) != none;
}

Tensor Window2D::pad(const Tensor& x, double value) const {
  if (!needs_padding(x)) return x;
  const auto [top, bottom] = rows.padding(x.size(1));
  const auto [left, right] = columns.padding(x.size(2));
  return at::constant_pad_nd(x, {0, 0, left, right, top, bottom}, value);
}

Tensor Window2D::crop(const Tensor& padded, int64_t height, int64_t width) const {
  return padded.narrow(1, rows.padding(height)[0], height)
      .narrow(2, columns.padding(width)[0], width);
}

Window2D make_window(const std::string& who, Size2D size, Size2D strides, Size2D dilation,
                     const std::string& padding) {
  const auto positive = [&](Size2D s, const char* what) {
    COHORT_CHECK_ARG(s.height > 0 && s.width > 0, "[", who, "] expected ", what, " > 0, got [",
                     s.height, ", ", s.width, "]");
  };
  positive(size, "a window size");
  positive(strides, "strides");
  positive(dilation, "a dilation rate");
  COHORT_CHECK_ARG(padding == "valid" || padding == "same", "[", who,
                   "] expected padding valid or same, got ", padding);
  const bool same = padding == "same";
  return {{size.height, strides.height, dilation.height, same},
          {size.width, strides.width, dilation.width, same}};
}

bool is_channels_first(const std::string& who, const std::string& data_format) {
  COHORT_CHECK_ARG(data_format == "channels_last" || data_format == "channels_first", "[", who,
                   "] expected data_format channels_last or channels_first, got ", data_format);
  return data_format == "channels_first";
}

Tensor to_channels_first(const Tensor& x) { return x.permute({0, 3, 1, 2}); }
Tensor to_channels_last(const Tensor& x) { return x.permute({0, 2, 3, 1}); }

Shape output_shape(const std::string& who, const Window2D& window, const Shape& input,
                   int64_t channels, bool channels_first) {
  const std::size_t first = channels_first ? 2 : 1;
  const int64_t height = window.rows.outputs(input[first]);
  const int64_t width = window.columns.outputs(input[first + 1]);
  COHORT_CHECK_ARG(height != 0 && width != 0, "[", who, "] expected inputs of at least ",
                   window.rows.extent(), " by ", window.columns.extent(), ", got shape ",
                   bracketed(input));
  if (channels_first) return {input[0], channels, height, width};
  return {input[0], height, width, channels};
}

}  // namespace cohort::keras::internal
