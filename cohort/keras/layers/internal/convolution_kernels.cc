// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/convolution_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "cohort/keras/layers/internal/kernels.h"

namespace cohort::keras::internal {
namespace {

float* data_or_null(const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

// Where pixels and taps lie in a padded image.
struct Layout {
  std::vector<int64_t> pixels, taps;
  int64_t run = 1;
  int64_t out_height = 0, out_width = 0, out_channels = 0;

  Layout(const WindowBox& w, int64_t height, int64_t width, int64_t channels, int64_t filters)
      : out_channels(filters) {
    out_height = (height - w[0].extent()) / w[0].stride + 1;
    out_width = (width - w[1].extent()) / w[1].stride + 1;
    pixels.reserve(static_cast<std::size_t>(out_height * out_width));
    for (int64_t i = 0; i < out_height; ++i) {
      for (int64_t j = 0; j < out_width; ++j) {
        pixels.push_back((i * w[0].stride * width + j * w[1].stride) * channels);
      }
    }
    taps.reserve(static_cast<std::size_t>(w[0].size * w[1].size * channels));
    for (int64_t i = 0; i < w[0].size; ++i) {
      for (int64_t j = 0; j < w[1].size; ++j) {
        const int64_t place = (i * w[0].dilation * width + j * w[1].dilation) * channels;
        for (int64_t c = 0; c < channels; ++c) taps.push_back(place + c);
      }
    }
    run = w[1].dilation == 1 ? w[1].size * channels : channels;
  }

  ConvImage image(const float* x) const {
    return {x,
            pixels.data(),
            taps.data(),
            static_cast<int64_t>(pixels.size()),
            static_cast<int64_t>(taps.size()),
            run,
            out_channels};
  }
  int64_t out_size() const { return static_cast<int64_t>(pixels.size()) * out_channels; }
};

// The images of [b, height, width, channels], one at a time with what the window wants around:
// a copy that stays in the cache, of which the border is zero from the beginning.
class PaddedImages {
 public:
  PaddedImages(const WindowBox& w, const Tensor& x)
      : rows_(x.size(1)), row_size_(x.size(2) * x.size(3)), size_(rows_ * row_size_) {
    const auto [top, bottom] = w[0].around(x.size(1));
    const auto [left, right] = w[1].around(x.size(2));
    height_ = top + x.size(1) + bottom;
    width_ = left + x.size(2) + right;
    channels_ = x.size(3);
    first_ = (top * width_ + left) * channels_;
    if (height_ != x.size(1) || width_ != x.size(2)) {
      padded_ = at::zeros({padded_size()}, x.options());
    }
  }
  Layout layout(const WindowBox& w, int64_t filters) const {
    return {w, height_, width_, channels_, filters};
  }

  /// Image i of `all`, until the next call.
  const float* read(const float* all, int64_t i) {
    all += i * size_;
    if (!padded_.defined()) return all;
    float* to = data_or_null(padded_) + first_;
    for (int64_t row = 0; row < rows_; ++row, to += width_ * channels_, all += row_size_) {
      std::copy_n(all, row_size_, to);
    }
    return data_or_null(padded_);
  }
  /// Zeros, to add image i of `all` to.
  float* begin(float* all, int64_t i) {
    float* to = padded_.defined() ? data_or_null(padded_) : all + i * size_;
    std::fill_n(to, padded_size(), 0.0F);
    return to;
  }
  /// Puts what was added into `all`.
  void end(float* all, int64_t i) const {
    if (!padded_.defined()) return;
    const float* from = data_or_null(padded_) + first_;
    all += i * size_;
    for (int64_t row = 0; row < rows_; ++row, from += width_ * channels_, all += row_size_) {
      std::copy_n(from, row_size_, all);
    }
  }

 private:
  int64_t padded_size() const { return height_ * width_ * channels_; }

  const int64_t rows_, row_size_, size_;
  int64_t height_ = 0, width_ = 0, channels_ = 0, first_ = 0;
  Tensor padded_;  // undefined: nothing is wanted around
};

bool gives_input_gradient(const Tensor& x) { return x.size(3) % kChannelPack == 0; }

// [kh * kw][out][in] of [kh, kw, in, out].
Tensor transposed_kernel(const Tensor& kernel) {
  Tensor out =
      at::empty({kernel.size(0), kernel.size(1), kernel.size(3), kernel.size(2)}, kernel.options());
  kernels().transpose_kernel(kernel.const_data_ptr<float>(), out.mutable_data_ptr<float>(),
                             kernel.size(0) * kernel.size(1), kernel.size(2), kernel.size(3));
  return out;
}

// For few input channels: the image's own gradient is seldom wanted there.
void input_gradient_by_libtorch(OwnBackward& pass) {
  const WindowBox& w = pass.window;
  const Tensor x = w.pad(pass.x, 0);
  const Tensor g = pass.y.defined() ? pass.g.mul(pass.y.gt(0)) : pass.g;
  const auto [dx, dw, db] = at::convolution_backward(
      to_channels_first(g), to_channels_first(x), pass.kernel.permute({3, 2, 0, 1}), {},
      {w[0].stride, w[1].stride}, {0, 0}, {w[0].dilation, w[1].dilation}, false, {0, 0}, 1,
      {true, false, false});
  pass.dx.copy_(w.crop(to_channels_last(dx), pass.x));
}

// Buffers of one backward pass.
struct Scratch {
  PaddedImages images, gradients;
  Tensor masked = {}, transposed = {};
  float* bias = nullptr;
};

void backward_image(OwnBackward& pass, const Layout& layout, Scratch& scratch, int64_t i) {
  const int64_t pixels = static_cast<int64_t>(layout.pixels.size());
  const float* g = pass.g.const_data_ptr<float>() + i * layout.out_size();
  float* masked = data_or_null(scratch.masked);
  if (masked != nullptr || scratch.bias != nullptr) {
    const float* y =
        masked == nullptr ? nullptr : pass.y.const_data_ptr<float>() + i * layout.out_size();
    kernels().mask_and_sum(g, y, masked, scratch.bias, pixels, layout.out_channels, true);
    if (masked != nullptr) g = masked;
  }
  if (pass.kernel_gradient.defined()) {
    const float* x = scratch.images.read(pass.x.const_data_ptr<float>(), i);
    kernels().conv_kernel_gradient(layout.image(x), g, pass.accumulate_kernel || i > 0,
                                   pass.kernel_gradient.mutable_data_ptr<float>());
  }
  if (scratch.transposed.defined()) {
    float* all = pass.dx.mutable_data_ptr<float>();
    float* dx = scratch.gradients.begin(all, i);
    kernels().conv_input_gradient(layout.image(dx), pass.x.size(3), g,
                                  scratch.transposed.const_data_ptr<float>(), dx);
    scratch.gradients.end(all, i);
  }
}

}  // namespace

bool has_own_convolution(const Tensor& x, const Tensor& kernel, int64_t groups) {
  return at::get_num_threads() == 1 && groups == 1 && x.scalar_type() == kFloat32 &&
         x.device().is_cpu() && kernel.scalar_type() == kFloat32 && kernel.is_contiguous() &&
         kernel.size(3) % kChannelPack == 0;
}

Tensor own_forward(const WindowBox& window, const Tensor& x, const Tensor& kernel,
                   const Tensor& bias, bool relu) {
  PaddedImages images(window, x);
  const Layout layout = images.layout(window, kernel.size(3));
  Tensor y =
      at::empty({x.size(0), layout.out_height, layout.out_width, layout.out_channels}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const float* shift = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  for (int64_t i = 0; i < x.size(0); ++i) {
    kernels().conv_forward(layout.image(images.read(from, i)), kernel.const_data_ptr<float>(),
                           shift, relu, to + i * layout.out_size());
  }
  return y;
}

void own_backward(OwnBackward& pass) {
  Scratch scratch{{pass.window, pass.x}, {pass.window, pass.x}};
  const Layout layout = scratch.images.layout(pass.window, pass.kernel.size(3));
  if (pass.y.defined()) scratch.masked = at::empty({layout.out_size()}, pass.x.options());
  if (pass.bias_gradient.defined()) {
    scratch.bias = pass.bias_gradient.mutable_data_ptr<float>();
    if (!pass.accumulate_bias) pass.bias_gradient.zero_();
  }
  const bool empty = pass.x.size(0) == 0;
  if (empty && pass.kernel_gradient.defined() && !pass.accumulate_kernel) {
    pass.kernel_gradient.zero_();
  }
  const bool own_dx = pass.dx.defined() && gives_input_gradient(pass.x);
  if (own_dx) scratch.transposed = transposed_kernel(pass.kernel);
  for (int64_t i = 0; i < pass.x.size(0); ++i) backward_image(pass, layout, scratch, i);
  if (pass.dx.defined() && !own_dx) input_gradient_by_libtorch(pass);
}

}  // namespace cohort::keras::internal
