// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/pooling.h"

#include <ATen/Parallel.h>
#include <ATen/core/DimVector.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <limits>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {
namespace {

using cohort::internal::autograd::BelowAutograd;
using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;
using internal::kernels;
using internal::to_channels_first;
using internal::to_channels_last;
using internal::WindowBox;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

at::DimVector each(const WindowBox& w, int64_t internal::Window::*member) {
  at::DimVector all;
  for (const internal::Window& axis : w.axes()) all.push_back(axis.*member);
  return all;
}
at::DimVector size_of(const WindowBox& w) { return each(w, &internal::Window::size); }
at::DimVector stride_of(const WindowBox& w) { return each(w, &internal::Window::stride); }

bool has_own_pooling(const WindowBox& w, const Tensor& x) {
  // The kernels run on one thread; the place of a maximum in its window is kept in a byte.
  return at::get_num_threads() == 1 && x.scalar_type() == kFloat32 && x.device().is_cpu() &&
         w.rank() == 2 && w[0].size * w[1].size <= std::numeric_limits<uint8_t>::max();
}

// Of a padded input.
internal::Windows kernel_windows(const WindowBox& w, const Tensor& x) {
  return {.height = x.size(1),
          .width = x.size(2),
          .channels = x.size(3),
          .out_height = (x.size(1) - w[0].size) / w[0].stride + 1,
          .out_width = (x.size(2) - w[1].size) / w[1].stride + 1,
          .kernel_height = w[0].size,
          .kernel_width = w[1].size,
          .stride_y = w[0].stride,
          .stride_x = w[1].stride};
}

struct Pooled {
  Tensor y;
  Tensor place;
};

Pooled max_pool(const WindowBox& window, const Tensor& input) {
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
  MaxPoolNode(const WindowBox& window, const Tensor& x, Tensor place)
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
    const auto [top, bottom] = window_[0].around(input.size(1));
    const auto [left, right] = window_[1].around(input.size(2));
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
    return {window_.crop(dx, input).contiguous()};
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
    return {window_.crop(to_channels_last(dx), input)};
  }

 private:
  const WindowBox window_;
  SavedVariable x_;
  Tensor place_;
};

}  // namespace

struct internal::PoolingPlan {
  WindowBox window;
  WindowBox image;  // the same, where a series is an image of one row
  bool channels_first = false;
};

template <int N>
PoolingLayer<N>::PoolingLayer(const char* who, PoolingConfig<N> config)
    : LayerImpl<PoolingConfig<N>>([&config] {
        if (!config.strides) config.strides = config.pool_size;  // as Keras's config has it
        return std::move(config);
      }()) {
  const PoolingConfig<N>& o = this->config();
  const std::string name = str_cat(who, N, "d");
  COHORT_CHECK_ARG(o.padding != "causal", "[", name,
                   "] expected padding valid or same, got causal");
  const WindowBox window = internal::make_window<N>(name, o.pool_size, *o.strides, 1, o.padding);
  plan_ = std::make_unique<internal::PoolingPlan>(internal::PoolingPlan{
      window, N == 1 ? window.lifted() : window, internal::is_channels_first(name, o.data_format)});
}

template <int N>
PoolingLayer<N>::~PoolingLayer() = default;

template <int N>
Shape PoolingLayer<N>::compute_output_shape(const Shape& input_shape) const {
  const internal::DataLayout layout(this->name(), input_shape, N, plan_->channels_first);
  return internal::output_shape(this->name(), plan_->window, input_shape,
                                input_shape[layout.channels], plan_->channels_first);
}

template <int N>
Tensor PoolingLayer<N>::call(const Tensor& input, const CallArgs&) {
  compute_output_shape(shape_of(input));
  const Tensor x = plan_->channels_first ? to_channels_last(input) : input;
  const Tensor y = N == 1 ? pool(x.unsqueeze(1)).squeeze(1) : pool(x);
  return plan_->channels_first ? to_channels_first(y) : y;
}

template <int N>
Tensor MaxPoolingLayer<N>::pool(const Tensor& x) const {
  const WindowBox& window = this->plan().image;
  if (!has_own_pooling(window, x)) {
    const Tensor padded = to_channels_first(window.pad(x, kLowest));
    if constexpr (N == 3) {
      return to_channels_last(at::max_pool3d(padded, size_of(window), stride_of(window)));
    } else {
      return to_channels_last(at::max_pool2d(padded, size_of(window), stride_of(window)));
    }
  }
  Pooled out = max_pool(window, x);
  if (cohort::internal::autograd::needs_node({&x}, {})) {
    cohort::internal::autograd::attach(
        out.y, cohort::internal::runtime::make_node<MaxPoolNode>(window, x, std::move(out.place)));
  }
  return out.y;
}

template <int N>
Tensor AveragePoolingLayer<N>::pool(const Tensor& x) const {
  const WindowBox& window = this->plan().image;
  const auto average = [&](const Tensor& t) {
    if constexpr (N == 3) {  // which LibTorch has not in half precision
      const bool half = at::isReducedFloatingType(t.scalar_type());
      return at::avg_pool3d(to_channels_first(half ? t.to(kFloat32) : t), size_of(window),
                            stride_of(window))
          .to(t.scalar_type());
    } else {
      return at::avg_pool2d(to_channels_first(t), size_of(window), stride_of(window));
    }
  };
  if (!window.needs_padding(x)) return to_channels_last(average(x));
  // What lies outside does not count: divide by the share of the window that lies inside.
  Shape one = shape_of(x);
  one.front() = one.back() = 1;
  const Tensor inside = at::ones(one, x.options());
  return to_channels_last(average(window.pad(x, 0)) / average(window.pad(inside, 0)));
}

template <int N>
GlobalPoolingLayer<N>::GlobalPoolingLayer(GlobalPoolingOptions options)
    : LayerImpl(std::move(options)),
      channels_first_(
          internal::is_channels_first(str_cat("global_pooling", N, "d"), config().data_format)) {}

template <int N>
std::vector<int64_t> GlobalPoolingLayer<N>::axes() const {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < N; ++i) axes.push_back(i + (channels_first_ ? 2 : 1));
  return axes;
}

template <int N>
Shape GlobalPoolingLayer<N>::compute_output_shape(const Shape& in) const {
  const internal::DataLayout layout(name(), in, N, channels_first_);
  if (!config().keepdims) return {in[0], in[layout.channels]};
  Shape out(in.size(), 1);
  out[0] = in[0];
  out[layout.channels] = in[layout.channels];
  return out;
}

template <int N>
Tensor GlobalAveragePoolingLayer<N>::call(const Tensor& x, const CallArgs& args) {
  const bool keepdims = this->config().keepdims;
  if (N == 1 && args.mask.has_value()) {  // of a series: the steps that count
    const Tensor counts = args.mask.tensor().unsqueeze(this->channels_first_ ? 1 : 2);
    const Tensor number = counts.to(x.scalar_type()).sum(this->axes(), keepdims);
    return at::where(counts, x, 0).sum(this->axes(), keepdims) / number;
  }
  return x.mean(this->axes(), keepdims);
}

template <int N>
Tensor GlobalMaxPoolingLayer<N>::call(const Tensor& x, const CallArgs&) {
  return x.amax(this->axes(), this->config().keepdims);
}

template <int N>
AdaptivePoolingLayer<N>::AdaptivePoolingLayer(AdaptivePoolingConfig<N> config)
    : LayerImpl<AdaptivePoolingConfig<N>>(std::move(config)),
      channels_first_(internal::is_channels_first(str_cat("adaptive_pooling", N, "d"),
                                                  this->config().data_format)) {
  for (const int64_t size : this->config().output_size.each) {
    COHORT_CHECK_ARG(size > 0, "[adaptive_pooling] expected output_size > 0, got ",
                     this->config().output_size);
  }
}

template <int N>
Shape AdaptivePoolingLayer<N>::compute_output_shape(const Shape& in) const {
  const internal::DataLayout layout(this->name(), in, N, channels_first_);
  Shape out = in;
  for (std::size_t i = 0; i < N; ++i) out[layout.first + i] = this->config().output_size[i];
  return out;
}

template <int N>
Tensor AdaptivePoolingLayer<N>::call(const Tensor& input, const CallArgs&) {
  compute_output_shape(shape_of(input));
  const Tensor x = channels_first_ ? input : to_channels_first(input);
  std::vector<int64_t> size(this->config().output_size.each.begin(),
                            this->config().output_size.each.end());
  Tensor y;
  if constexpr (N == 1) {
    y = pool(x.unsqueeze(2), {1, size[0]}).squeeze(2);
  } else {
    y = pool(x, size);
  }
  return channels_first_ ? y : to_channels_last(y);
}

template <int N>
Tensor AdaptiveAveragePoolingLayer<N>::pool(const Tensor& x,
                                            const std::vector<int64_t>& output_size) const {
  if constexpr (N == 3) return at::adaptive_avg_pool3d(x, output_size);
  return at::adaptive_avg_pool2d(x, output_size);
}

template <int N>
Tensor AdaptiveMaxPoolingLayer<N>::pool(const Tensor& x,
                                        const std::vector<int64_t>& output_size) const {
  if constexpr (N == 3) return std::get<0>(at::adaptive_max_pool3d(x, output_size));
  return std::get<0>(at::adaptive_max_pool2d(x, output_size));
}

template class PoolingLayer<1>;
template class PoolingLayer<2>;
template class PoolingLayer<3>;
template class MaxPoolingLayer<1>;
template class MaxPoolingLayer<2>;
template class MaxPoolingLayer<3>;
template class AveragePoolingLayer<1>;
template class AveragePoolingLayer<2>;
template class AveragePoolingLayer<3>;
template class GlobalPoolingLayer<1>;
template class GlobalPoolingLayer<2>;
template class GlobalPoolingLayer<3>;
template struct GlobalAveragePoolingLayer<1>;
template struct GlobalAveragePoolingLayer<2>;
template struct GlobalAveragePoolingLayer<3>;
template struct GlobalMaxPoolingLayer<1>;
template struct GlobalMaxPoolingLayer<2>;
template struct GlobalMaxPoolingLayer<3>;
template class AdaptivePoolingLayer<1>;
template class AdaptivePoolingLayer<2>;
template class AdaptivePoolingLayer<3>;
template struct AdaptiveAveragePoolingLayer<1>;
template struct AdaptiveAveragePoolingLayer<2>;
template struct AdaptiveAveragePoolingLayer<3>;
template struct AdaptiveMaxPoolingLayer<1>;
template struct AdaptiveMaxPoolingLayer<2>;
template struct AdaptiveMaxPoolingLayer<3>;

}  // namespace cohort::keras
