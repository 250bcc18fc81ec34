// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/einsum_dense.h"

#include <ATen/ops/einsum.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/kernel_and_bias.h"

namespace cohort::keras {
namespace {

constexpr const char* kEllipsis = "...";

// Whether `text` had it at that end, which is taken off.
bool take_ellipsis(std::string& text, bool at_front) {
  if (at_front ? !text.starts_with(kEllipsis) : !text.ends_with(kEllipsis)) return false;
  text = at_front ? text.substr(3) : text.substr(0, text.size() - 3);
  return true;
}

bool has_letters_only(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
  });
}

std::size_t place_of(char letter, const std::string& letters) { return letters.find(letter); }

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// Those that scale their numbers by the sizes of in and out.
bool counts_fans(const Initializer& initializer) {
  const Config config = initializer.serialize();
  const std::string name = config.is_text() ? config.text() : config.text("class_name");
  const auto names = {"VarianceScaling", "GlorotUniform", "GlorotNormal", "HeUniform",
                      "HeNormal",        "LecunUniform",  "LecunNormal"};
  return std::ranges::count(names, name) == 1;
}

// Made as a matrix [in, out], and so with Keras's fans, whatever the order of the kernel's axes.
Initializer by_axes(const Initializer& initializer, std::vector<int64_t> in,
                    const std::vector<int64_t>& out) {
  const auto inputs = in.size();
  std::vector<int64_t> order = std::move(in);
  order.insert(order.end(), out.begin(), out.end());
  return Initializer([initializer, order, inputs](const Shape& shape, DType dtype) {
    Shape matrix = {1, 1}, axes;
    std::vector<int64_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto axis = static_cast<std::size_t>(order[i]);
      axes.push_back(shape[axis]);
      matrix[i < inputs ? 0 : 1] *= shape[axis];
      back[axis] = static_cast<int64_t>(i);
    }
    return initializer(matrix, dtype).reshape(axes).permute(back).contiguous();
  });
}

}  // namespace

EinsumDenseLayer::Equation EinsumDenseLayer::parsed(const std::string& text) {
  Equation e;
  const std::size_t comma = text.find(','), arrow = text.find("->");
  bool fits = comma != std::string::npos && arrow != std::string::npos && comma < arrow;
  if (fits) {
    e.input = text.substr(0, comma);
    e.kernel = text.substr(comma + 1, arrow - comma - 1);
    e.output = text.substr(arrow + 2);
    e.left = take_ellipsis(e.input, true);
    fits = e.left == take_ellipsis(e.output, true);
    if (!e.left) e.right = take_ellipsis(e.input, false);
    fits = fits && e.right == take_ellipsis(e.output, false);
  }
  COHORT_CHECK_ARG(
      fits && has_letters_only(e.input) && has_letters_only(e.kernel) && has_letters_only(e.output),
      "[einsum_dense] expected an equation like ab,bc->ac, ...ab,bc->...ac or "
      "ab...,bc->ac..., got ",
      text);
  for (const char letter : e.output) {
    COHORT_CHECK_ARG(has(e.input, letter) || has(e.kernel, letter), "[einsum_dense] expected axis ",
                     letter, " of the output in the input or the kernel, got ", text);
  }
  for (const char letter : e.kernel) {
    COHORT_CHECK_ARG(has(e.input, letter) || has(e.output, letter), "[einsum_dense] expected axis ",
                     letter, " of the kernel in the input or the output, got ", text);
  }
  return e;
}

EinsumDenseLayer::EinsumDenseLayer(EinsumDenseConfig config)
    : LayerImpl(std::move(config)), equation_(parsed(this->config().equation)) {
  if (this->config().lora_rank) {
    throw Unimplemented(
        "[einsum_dense] expected no lora_rank: low-rank adaptation is not there yet");
  }
  for (const char axis : this->config().bias_axes.value_or("")) {
    COHORT_CHECK_ARG(has(equation_.output, axis), "[einsum_dense] expected bias axes of ",
                     equation_.output, ", got ", axis);
  }
}

// The bias has the output's axes from its first one on, those it has not as 1.
Shape EinsumDenseLayer::bias_for(const Shape& output, std::size_t elided) const {
  const std::string& axes = *config().bias_axes;
  const std::size_t ahead = equation_.left ? elided : 0;
  std::size_t first = equation_.output.size();
  for (const char axis : axes) first = std::min(first, place_of(axis, equation_.output));
  Shape bias;
  for (std::size_t i = first; i < equation_.output.size(); ++i) {
    bias.push_back(has(axes, equation_.output[i]) ? output[ahead + i] : 1);
  }
  if (!equation_.left) bias.insert(bias.end(), elided, 1);
  return bias;
}

EinsumDenseLayer::Sizes EinsumDenseLayer::sizes_for(const Shape& input) const {
  const Equation& e = equation_;
  const bool open = e.left || e.right;
  COHORT_CHECK_ARG(input.size() == e.input.size() || (open && input.size() > e.input.size()), "[",
                   name(), "] expected inputs with ", open ? "at least " : "", e.input.size(),
                   " axes for ", config().equation, ", got shape ", bracketed(input));
  const std::size_t elided = input.size() - e.input.size();
  const std::size_t ahead = e.left ? elided : 0;
  Sizes sizes;
  // The batch is not in the options, nor are axes that the equation leaves out.
  sizes.output = {input[0]};
  for (std::size_t i = 1; i < ahead; ++i) sizes.output.push_back(input[i]);
  sizes.output.insert(sizes.output.end(), config().output_shape.begin(),
                      config().output_shape.end());
  if (!e.left)
    sizes.output.insert(sizes.output.end(), input.end() - static_cast<std::ptrdiff_t>(elided),
                        input.end());
  COHORT_CHECK_ARG(sizes.output.size() == e.output.size() + elided, "[", name(),
                   "] expected an output_shape for ", config().equation, " on inputs ",
                   bracketed(input), ", got ", bracketed(config().output_shape));
  const auto in_input = [&](char axis) { return input[ahead + place_of(axis, e.input)]; };
  const auto in_output = [&](char axis) -> int64_t& {
    return sizes.output[ahead + place_of(axis, e.output)];
  };
  for (const char axis : e.input) {
    if (!has(e.output, axis)) continue;
    const int64_t size = in_input(axis);
    int64_t& given = in_output(axis);
    COHORT_CHECK_ARG(given == size || given == kUnknownDim || size == kUnknownDim, "[", name(),
                     "] expected axis ", axis, " of input and output to have one size, got ", size,
                     " and ", given);
    if (given == kUnknownDim) given = size;
  }
  for (std::size_t i = 0; i < e.kernel.size(); ++i) {
    const char axis = e.kernel[i];
    const bool goes_out = has(e.output, axis);
    sizes.kernel.push_back(goes_out ? in_output(axis) : in_input(axis));
    (goes_out ? sizes.out_axes : sizes.in_axes).push_back(static_cast<int64_t>(i));
  }
  if (config().bias_axes) sizes.bias = bias_for(sizes.output, elided);
  return sizes;
}

void EinsumDenseLayer::build(const Shape& input_shape) {
  const EinsumDenseConfig& o = config();
  const Sizes sizes = sizes_for(input_shape);
  const auto check = [&](const Shape& shape, const char* what) {
    COHORT_CHECK_ARG(std::ranges::count(shape, kUnknownDim) == 0, "[", name(),
                     "] expected an output_shape that says the sizes of the ", what, ", got ",
                     bracketed(shape), " for ", o.equation);
  };
  check(sizes.kernel, "kernel");
  check(sizes.bias, "bias");
  WeightOptions kernel = internal::kernel_options(o, sizes.kernel);
  if (counts_fans(o.kernel_initializer)) {
    kernel.initializer = by_axes(o.kernel_initializer, sizes.in_axes, sizes.out_axes);
  }
  kernel_ = add_weight(kernel);
  if (o.bias_axes) bias_ = add_weight(internal::bias_options(o, sizes.bias));
  set_input_spec({.rank = static_cast<int64_t>(input_shape.size())});
}

Shape EinsumDenseLayer::compute_output_shape(const Shape& input_shape) const {
  return sizes_for(input_shape).output;
}

Tensor EinsumDenseLayer::call(const Tensor& input, const CallArgs&) {
  Tensor y = at::einsum(config().equation, {input, kernel_.value().to(input.scalar_type())});
  if (bias_) y = y + bias_.value().to(y.scalar_type());
  return config().activation(y);
}

EinsumDense::EinsumDense(std::string equation, Shape output_shape, EinsumDenseOptions options)
    : Layer(std::make_shared<EinsumDenseLayer>(
          EinsumDenseConfig{std::move(options), std::move(equation), std::move(output_shape)})) {}

}  // namespace cohort::keras
