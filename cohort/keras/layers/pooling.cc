// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/pooling.h"

#include <ATen/Parallel.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>

#include <limits>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {
namespace {

using cohort::internal::BelowAutograd;
using cohort::internal::LayerNode;
using cohort::internal::SavedVariable;
using cohort::internal::variable_list;
using internal::kernels;
using internal::to_channels_first;
using internal::to_channels_last;
using internal::Window2D;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

std::array<int64_t, 2> size_of(const Window2D& w) { return {w.rows.size, w.columns.size}; }
std::array<int64_t, 2> stride_of(const Window2D& w) { return {w.rows.stride, w.columns.stride}; }

bool has_own_pooling(const Window2D& w, const Tensor& x) {
  // The kernels run on one thread; the place of a maximum in its window is kept in a byte.
  return at::get_num_threads() == 1 && x.scalar_type() == kFloat32 && x.device().is_cpu() &&
         w.rows.size * w.columns.size <= std::numeric_limits<uint8_t>::max();
}

// Of a padded input.
internal::Windows kernel_windows(const Window2D& w, const Tensor& x) {
  return {.height = x.size(1),
          .width = x.size(2),
          .channels = x.size(3),
          .out_height = (x.size(1) - w.rows.size) / w.rows.stride + 1,
          .out_width = (x.size(2) - w.columns.size) / w.columns.stride + 1,
          .kernel_height = w.rows.size,
          .kernel_width = w.columns.size,
          .stride_y = w.rows.stride,
          .stride_x = w.columns.stride};
}

struct Pooled {
  Tensor y;
  Tensor place;
};

Pooled max_pool(const Window2D& window, const Tensor& input) {
  const BelowAutograd below;
  const Tensor x = window.pad(input, kLowest).contiguous();
  const internal::Windows w = kernel_windows(window, x);
  const std::array<int64_t, 4> shape = {x.size(0), w.out_height, w.out_width, w.channels};
  Pooled out = {at::empty(shape, x.options()), at::empty(shape, x.options().dtype(kUint8))};
  const int64_t in_size = w.height * w.width * w.channels;
  const int64_t out_size = w.out_height * w.out_width * w.channels;
  const float* from = x.const_data_ptr<float>();
  float* to = out.y.mutable_data_ptr<float>();
  uint8_t* place = out.place.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < x.size(0); ++i) {
    kernels().max_pool(w, from + i * in_size, to + i * out_size, place + i * out_size);
  }
  return out;
}

class MaxPoolNode final : public LayerNode {
 public:
  MaxPoolNode(const Window2D& window, const Tensor& x, Tensor place)
      : window_(window), x_(x, false), place_(std::move(place)) {
    add_input(x);
  }
  void release_variables() override {
    x_.reset_data();
    place_.reset();
  }

 protected:
  variable_list backward(variable_list&& gradients) override {
    if (!gradients[0].defined() || !wants_input(0)) return variable_list(1);
    const Tensor input = x_.unpack();
    const Tensor g = gradients[0].contiguous();
    const auto [top, bottom] = window_.rows.padding(input.size(1));
    const auto [left, right] = window_.columns.padding(input.size(2));
    Tensor dx = at::empty(
        {input.size(0), input.size(1) + top + bottom, input.size(2) + left + right, input.size(3)},
        g.options());
    const internal::Windows w = kernel_windows(window_, dx);
    const int64_t in_size = w.height * w.width * w.channels;
    const int64_t out_size = w.out_height * w.out_width * w.channels;
    for (int64_t i = 0; i < dx.size(0); ++i) {
      kernels().max_pool_gradient(w, g.const_data_ptr<float>() + i * out_size,
                                  place_.const_data_ptr<uint8_t>() + i * out_size,
                                  dx.mutable_data_ptr<float>() + i * in_size);
    }
    if (!window_.needs_padding(input)) return {dx};
    return {window_.crop(dx, input.size(1), input.size(2)).contiguous()};
  }

  // The places are constants: the gradient is linear in g, and that is what is recorded.
  variable_list differentiable_backward(variable_list&& gradients) override {
    if (!gradients[0].defined() || !wants_input(0)) return variable_list(1);
    const Tensor input = x_.unpack();
    const Tensor x = to_channels_first(window_.pad(input.detach(), kLowest)).contiguous();
    const Tensor indices =
        std::get<1>(at::max_pool2d_with_indices(x, size_of(window_), stride_of(window_)));
    const Tensor dx = at::max_pool2d_with_indices_backward(
        to_channels_first(gradients[0]).contiguous(), x, size_of(window_), stride_of(window_),
        {0, 0}, {1, 1}, false, indices);
    return {window_.crop(to_channels_last(dx), input.size(1), input.size(2))};
  }

 private:
  const Window2D window_;
  SavedVariable x_;
  Tensor place_;
};

}  // namespace

struct Pooling2DLayer::Plan {
  Window2D window;
};

Pooling2DLayer::Pooling2DLayer(const char* who, Pooling2DConfig config)
    : LayerImpl([&config] {
        if (!config.strides) config.strides = config.pool_size;  // as Keras's config has it
        return std::move(config);
      }()) {
  const Pooling2DConfig& o = this->config();
  plan_ = std::make_unique<Plan>(
      Plan{internal::make_window(who, o.pool_size, *o.strides, 1, o.padding)});
  channels_first_ = internal::is_channels_first(who, o.data_format);
}

Pooling2DLayer::~Pooling2DLayer() = default;

Shape Pooling2DLayer::compute_output_shape(const Shape& input_shape) const {
  COHORT_CHECK_ARG(input_shape.size() == 4, "[", name(),
                   "] expected inputs with 4 axes, got shape ", bracketed(input_shape));
  return internal::output_shape(name(), plan_->window, input_shape,
                                input_shape[channels_first_ ? 1 : 3], channels_first_);
}

Tensor Pooling2DLayer::call(const Tensor& input, const CallArgs&) {
  COHORT_CHECK_ARG(input.dim() == 4, "[", name(), "] expected inputs with 4 axes, got shape ",
                   bracketed(input.sizes()));
  compute_output_shape(shape_of(input));
  if (!channels_first_) return pool(input);
  return to_channels_first(pool(to_channels_last(input)));
}

Tensor MaxPooling2DLayer::pool(const Tensor& x) const {
  const Window2D& window = plan().window;
  if (!has_own_pooling(window, x)) {
    return to_channels_last(at::max_pool2d(to_channels_first(window.pad(x, kLowest)),
                                           size_of(window), stride_of(window)));
  }
  Pooled out = max_pool(window, x);
  if (cohort::internal::needs_node({&x}, {})) {
    cohort::internal::attach(
        out.y, cohort::internal::make_node<MaxPoolNode>(window, x, std::move(out.place)));
  }
  return out.y;
}

Tensor AveragePooling2DLayer::pool(const Tensor& x) const {
  const Window2D& window = plan().window;
  const auto average = [&](const Tensor& t) {
    return at::avg_pool2d(to_channels_first(t), size_of(window), stride_of(window));
  };
  if (!window.needs_padding(x)) return to_channels_last(average(x));
  // What lies outside does not count: divide by the share of the window that lies inside.
  const Tensor inside = ones({1, x.size(1), x.size(2), 1}, x.scalar_type()).to(x.device());
  return to_channels_last(average(window.pad(x, 0)) / average(window.pad(inside, 0)));
}

GlobalAveragePooling2DLayer::GlobalAveragePooling2DLayer(GlobalPooling2DOptions options)
    : LayerImpl(std::move(options)),
      channels_first_(
          internal::is_channels_first("global_average_pooling2d", config().data_format)) {}

Shape GlobalAveragePooling2DLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(in.size() == 4, "[", name(), "] expected inputs with 4 axes, got shape ",
                   bracketed(in));
  const int64_t channels = in[channels_first_ ? 1 : 3];
  if (!config().keepdims) return {in[0], channels};
  return channels_first_ ? Shape{in[0], channels, 1, 1} : Shape{in[0], 1, 1, channels};
}

Tensor GlobalAveragePooling2DLayer::call(const Tensor& x, const CallArgs&) {
  return channels_first_ ? x.mean({2, 3}, config().keepdims) : x.mean({1, 2}, config().keepdims);
}

MaxPooling2D::MaxPooling2D(Size2D pool_size, Pooling2DOptions options)
    : Layer(std::make_shared<MaxPooling2DLayer>(Pooling2DConfig{std::move(options), pool_size})) {}

AveragePooling2D::AveragePooling2D(Size2D pool_size, Pooling2DOptions options)
    : Layer(
          std::make_shared<AveragePooling2DLayer>(Pooling2DConfig{std::move(options), pool_size})) {
}

GlobalAveragePooling2D::GlobalAveragePooling2D(GlobalPooling2DOptions options)
    : Layer(std::make_shared<GlobalAveragePooling2DLayer>(std::move(options))) {}

}  // namespace cohort::keras
