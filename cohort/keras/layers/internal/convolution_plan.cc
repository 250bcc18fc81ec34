// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/convolution_plan.h"

#include <ATen/ops/convolution.h>

namespace cohort::keras::internal {

void ConvolutionPlan::check_positive(const char* what, int64_t number) const {
  COHORT_CHECK_ARG(number > 0, "[", who, "] expected ", what, " > 0, got ", number);
}

int64_t ConvolutionPlan::channels_in(const std::string& name, const Shape& input_shape) const {
  const DataLayout layout(name, input_shape, rank(), channels_first);
  const int64_t channels = input_shape[layout.channels];
  COHORT_CHECK_ARG(channels > 0, "[", name,
                   "] expected inputs with a known number of channels, got shape ",
                   bracketed(input_shape));
  return channels;
}

InputSpec ConvolutionPlan::input_spec(int64_t channels) const {
  return {.rank = rank() + 2, .axis = channels_first ? 1 : -1, .size = channels};
}

Shape ConvolutionPlan::output_shape(const std::string& name, const Shape& input_shape,
                                    int64_t filters) const {
  return internal::output_shape(name, convolution.window, input_shape, filters, channels_first);
}

// Even zeros around are LibTorch's to add, without a copy of the input.
Tensor plain_convolution(const Convolution& c, const Tensor& input, const Tensor& kernel,
                         const Tensor& bias, int64_t groups) {
  at::DimVector padding;
  bool even = true;
  for (int axis = 0; axis < c.window.rank(); ++axis) {
    const auto [before, after] = c.window[axis].around(input.size(axis + 1));
    even = even && before == after;
    padding.push_back(before);
  }
  if (!even) padding = c.none();
  const Tensor x = even ? input : c.window.pad(input, 0);
  return to_channels_last(at::convolution(to_channels_first(x), kernel, bias, c.stride(), padding,
                                          c.dilation(), false, c.none(), groups));
}

}  // namespace cohort::keras::internal
