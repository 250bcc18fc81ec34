// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/conv_lstm.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {
namespace {

using internal::Padding;
using internal::Window;

struct ConvLSTMCellConfig : ConvLSTMConfig {
  static void fields(auto&, auto&&) {}
};

// Everything inside is channels first; a kernel [k..., in, out] is used as [out, in, k...].
class ConvLSTMCell final : public LayerImpl<ConvLSTMCellConfig, RNNCellBase> {
 public:
  ConvLSTMCell(std::size_t rank, ConvLSTMCellConfig config)
      : LayerImpl(std::move(config)),
        rank_(rank),
        masks_(std::make_unique<internal::Draws>(this->config().seed,
                                                 internal::Draws::Number::kOfTheUnseeded)) {}
  std::string class_name() const override { return "ConvLSTMCell"; }
  Shape state_size() const override { return {config().filters, config().filters}; }

  void build(const Shape& step) override {
    output_shape(step);
    const int64_t in = step[channels_axis(step)];
    Shape kernel = config().kernel_size.sizes, recurrent = kernel;
    kernel.insert(kernel.end(), {in, 4 * config().filters});
    recurrent.insert(recurrent.end(), {config().filters, 4 * config().filters});
    COHORT_CHECK_ARG(
        std::ranges::count_if(step.begin() + 1, step.end(), [](auto n) { return n <= 0; }) == 0,
        "[", name(), "] expected known sizes of space, got steps of shape ", bracketed(step));
    kernel_ = weight("kernel", kernel, config().kernel_initializer, config().kernel_regularizer,
                     config().kernel_constraint);
    recurrent_kernel_ = weight("recurrent_kernel", recurrent, config().recurrent_initializer,
                               config().recurrent_regularizer, config().recurrent_constraint);
    if (!config().use_bias) return;
    const int64_t n = config().filters;
    const Initializer given = config().bias_initializer;
    const auto forget = [given, n](const Shape&, DType dtype) {
      return at::cat({given({n}, dtype), ones({n}, dtype), given({2 * n}, dtype)});
    };
    bias_ = weight("bias", {4 * n}, config().unit_forget_bias ? Initializer(forget) : given,
                   config().bias_regularizer, config().bias_constraint);
  }

  Shape output_shape(const Shape& step) const override {
    COHORT_CHECK_ARG(step.size() == rank_ + 2, "[", name(), "] expected steps with ", rank_ + 2,
                     " axes, got shape ", bracketed(step));
    Shape out = step;
    out[channels_axis(step)] = config().filters;
    for (std::size_t i = 0; i < rank_; ++i) {
      int64_t& n = out[first_space() + i];
      n = n < 0 ? n : window(i).outputs(n);
    }
    return out;
  }
  std::vector<Shape> state_shapes(const Shape& step) const override {
    return {output_shape(step), output_shape(step)};
  }

  Tensor step(const Tensor& input, std::vector<Tensor>& states, const CallArgs& args) override {
    SequenceRun one{.steps = input.unsqueeze(0), .states = std::move(states)};
    Tensor output = run(one, args);
    states = std::move(one.states);
    return output;
  }

  Tensor run(SequenceRun& run, const CallArgs& args) override {
    const auto draw = [&](double rate, const Tensor& like) {
      std::vector<Tensor> masks;
      for (int i = 0; i < 4 && args.training && rate > 0 && rate < 1; ++i) {
        masks.push_back(masks_->keep_mask(shape_of(like), rate, like));
      }
      return masks;
    };
    const std::vector<Tensor> drop_in = draw(config().dropout, run.steps[0]);
    const std::vector<Tensor> drop_state = draw(config().recurrent_dropout, run.states[0]);
    const Tensor from_input = input_products(run.steps, drop_in);
    const ActivationFunction& activation = config().activation;
    const ActivationFunction& gate = config().recurrent_activation;
    const int64_t channels = channels_first() ? 1 : static_cast<int64_t>(rank_) + 1;
    return internal::run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
      const Tensor z = from_input[t] + state_product(states[0], drop_state);
      const std::vector<Tensor> parts = z.chunk(4, channels);
      states[1] = gate(parts[1]) * states[1] + gate(parts[0]) * activation(parts[2]);
      return states[0] = gate(parts[3]) * activation(states[1]);
    });
  }

 protected:
  TrackedParts tracked_parts() const override {
    TrackedParts parts = LayerBase::tracked_parts();
    masks_->add_to(parts);
    return parts;
  }

 private:
  bool channels_first() const { return config().data_format == "channels_first"; }
  std::size_t first_space() const { return channels_first() ? 2 : 1; }
  std::size_t channels_axis(const Shape& step) const {
    COHORT_CHECK_ARG(step.size() == rank_ + 2, "[", name(), "] expected inputs with ", rank_ + 3,
                     " axes, got steps of shape ", bracketed(step));
    return channels_first() ? 1 : rank_ + 1;
  }
  // Along one axis: over the inputs.
  Window window(std::size_t i) const {
    return {.size = config().kernel_size.sizes[i],
            .stride = config().strides.sizes[i],
            .dilation = config().dilation_rate.sizes[i],
            .padding = config().padding == "same" ? Padding::kSame : Padding::kValid};
  }
  // Over a state, which keeps its size.
  Window state_window(std::size_t i) const {
    return {.size = config().kernel_size.sizes[i], .padding = Padding::kSame};
  }

  Variable weight(const char* weight_name, const Shape& shape, const Initializer& initializer,
                  const Regularizer& regularizer, const Constraint& constraint) {
    return add_weight({.name = weight_name,
                       .shape = shape,
                       .dtype = config().dtype.variable_dtype(),
                       .initializer = initializer,
                       .regularizer = regularizer,
                       .constraint = constraint});
  }

  // [k..., in, out] as [out, in, k...].
  Tensor as_filters(const Variable& kernel, const Tensor& like) const {
    const auto rank = static_cast<int64_t>(rank_);
    std::vector<int64_t> order = {rank + 1, rank};
    for (int64_t i = 0; i < rank; ++i) order.push_back(i);
    return kernel.value().to(like.scalar_type()).permute(order);
  }

  Tensor convolved(const Tensor& rows, const Tensor& filters, bool of_state) const {
    Tensor x = channels_first() ? rows : rows.movedim(-1, 1);
    std::vector<int64_t> pads;
    for (std::size_t i = rank_; i-- > 0;) {
      const Window along = of_state ? state_window(i) : window(i);
      const auto [before, after] = along.around(x.size(static_cast<int64_t>(i) + 2));
      pads.insert(pads.end(), {before, after});
    }
    if (std::ranges::count(pads, 0) != static_cast<std::ptrdiff_t>(pads.size())) {
      x = at::constant_pad_nd(x, pads, 0);
    }
    const Shape one(rank_, 1), none(rank_, 0);
    const Tensor y = at::convolution(x, filters, {}, of_state ? one : config().strides.sizes, none,
                                     of_state ? one : config().dilation_rate.sizes, false, none, 1);
    return channels_first() ? y : y.movedim(1, -1);
  }

  // Gate by gate where each has a mask of its own.
  Tensor products(const Tensor& rows, const Tensor& filters, const std::vector<Tensor>& masks,
                  bool of_state) const {
    if (masks.empty()) return convolved(rows, filters, of_state);
    std::vector<Tensor> parts;
    const int64_t n = config().filters;
    for (std::size_t i = 0; i < masks.size(); ++i) {
      const Tensor own = filters.narrow(0, static_cast<int64_t>(i) * n, n);
      parts.push_back(convolved(rows * masks[i], own, of_state));
    }
    return at::cat(parts, channels_first() ? 1 : -1);
  }

  // Of all steps, as one batch.
  Tensor input_products(const Tensor& steps, std::vector<Tensor> masks) const {
    for (Tensor& mask : masks) {
      mask = mask.unsqueeze(0).expand_as(steps).flatten(0, 1);
    }
    Tensor y = products(steps.flatten(0, 1), as_filters(kernel_, steps), masks, false);
    if (bias_) {
      Shape shape(rank_ + 2, 1);
      shape[channels_first() ? 1 : rank_ + 1] = 4 * config().filters;
      y = y + bias_.value().to(y.scalar_type()).view(shape);
    }
    return y.unflatten(0, {steps.size(0), steps.size(1)});
  }
  Tensor state_product(const Tensor& state, const std::vector<Tensor>& masks) const {
    return products(state, as_filters(recurrent_kernel_, state), masks, true);
  }

  const std::size_t rank_;
  std::unique_ptr<internal::Draws> masks_;
  Variable kernel_, recurrent_kernel_, bias_;
};

ConvLSTMConfig checked(ConvLSTMConfig config, std::size_t rank) {
  const auto fill = [&](const char* what, SpaceSizes& given) {
    if (given.sizes.size() == 1) given.sizes = Shape(rank, given.sizes[0]);
    const bool fits = given.sizes.size() == rank &&
                      std::ranges::all_of(given.sizes, [](int64_t n) { return n > 0; });
    COHORT_CHECK_ARG(fits, "[conv_lstm] expected ", what, " to be ", rank,
                     " positive numbers, got ", bracketed(given.sizes));
  };
  COHORT_CHECK_ARG(config.filters > 0, "[conv_lstm] expected filters > 0, got ", config.filters);
  fill("kernel_size", config.kernel_size);
  fill("strides", config.strides);
  fill("dilation_rate", config.dilation_rate);
  const auto large = [](const SpaceSizes& s) { return std::ranges::max(s.sizes) > 1; };
  COHORT_CHECK_ARG(!large(config.strides) || !large(config.dilation_rate),
                   "[conv_lstm] strides > 1 and dilation_rate > 1 cannot be combined, got ",
                   bracketed(config.strides.sizes), " and ", bracketed(config.dilation_rate.sizes));
  COHORT_CHECK_ARG(config.padding == "valid" || config.padding == "same",
                   "[conv_lstm] expected padding valid or same, got ", config.padding);
  COHORT_CHECK_ARG(config.data_format == "channels_last" || config.data_format == "channels_first",
                   "[conv_lstm] expected data_format channels_last or channels_first, got ",
                   config.data_format);
  for (const double rate : {config.dropout, config.recurrent_dropout}) {
    COHORT_CHECK_ARG(rate >= 0 && rate <= 1,
                     "[conv_lstm] expected rates of dropout between 0 and 1, got ", rate);
  }
  return config;
}

}  // namespace

Config SpaceSizes::serialize() const { return Config::List(sizes.begin(), sizes.end()); }

SpaceSizes SpaceSizes::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  SpaceSizes out;
  for (const Config& size : config.list()) out.sizes.push_back(size.integer());
  return out;
}

ConvLSTMLayer::ConvLSTMLayer(std::size_t rank, ConvLSTMConfig given)
    : RecurrentImpl(checked(std::move(given), rank)) {
  ConvLSTMCellConfig cell{config()};
  cell.name = "conv_lstm_cell";
  cell.activity_regularizer = {};
  cell.trainable = true;
  set_cell(std::make_shared<ConvLSTMCell>(rank, std::move(cell)), internal::modes_of(config()));
}

ConvLSTM1D::ConvLSTM1D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options)
    : RecurrentLayer(std::make_shared<ConvLSTM1DLayer>(
          ConvLSTMConfig{std::move(options), filters, std::move(kernel_size)})) {}

ConvLSTM2D::ConvLSTM2D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options)
    : RecurrentLayer(std::make_shared<ConvLSTM2DLayer>(
          ConvLSTMConfig{std::move(options), filters, std::move(kernel_size)})) {}

ConvLSTM3D::ConvLSTM3D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options)
    : RecurrentLayer(std::make_shared<ConvLSTM3DLayer>(
          ConvLSTMConfig{std::move(options), filters, std::move(kernel_size)})) {}

}  // namespace cohort::keras
