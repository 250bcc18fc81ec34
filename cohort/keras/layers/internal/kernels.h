// SPDX-License-Identifier: Apache-2.0
//
// The door between layers and their float32 kernels: one source (kernels.inc), compiled once per
// instruction set and chosen at run time. Plain data only: an inline function of the standard
// library, compiled for AVX-512, could be the copy that the linker keeps for all callers.
//
// Layouts are row-major with channels last; kernels of convolutions are [kh, kw, in, out].
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::keras::internal {

/// Output channels (and input channels for the gradient of the input) of the own convolution must
/// be a multiple of this.
inline constexpr int64_t kChannelPack = 16;

/// Windows over a padded image.
struct Windows {
  int64_t height, width, channels;  ///< Of the input, padding included.
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_y, stride_x;
};

/// One image. `pixels` and `taps` are offsets into it: of every output pixel's window, and of
/// every row of the kernel matrix within a window (out_height * out_width, and kh * kw * channels).
struct ConvImage {
  const float* x;
  const int64_t* pixels;
  const int64_t* taps;
  int64_t pixel_count;
  int64_t tap_count;
  int64_t run;  ///< Taps lie in runs of this many neighbours.
  int64_t out_channels;
};

/// out = relu?(a . b + bias), [rows, columns]; accumulate adds to out. Element (i, j) of a matrix
/// lies at [i * row + j * column]; one of a's two strides is 1, one of b's, and out's column is.
/// No size is zero.
struct Product {
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row, b_column;
  float* out;
  int64_t out_row;
  int64_t rows, depth, columns;
  const float* bias;  ///< [columns], or null.
  bool relu, accumulate;
};

struct Kernels {
  bool fast_products;  ///< Whether `product` beats a BLAS on this instruction set.
  /// No bit of an element depends on which others are computed with it.
  void (*product)(const Product& product);
  /// y = relu?(y + bias) over [rows, columns]. bias may be null.
  void (*bias_relu)(float* y, const float* bias, int64_t rows, int64_t columns, bool relu);
  /// out = y > 0 ? g : 0 (y null: out = g; out null: not written), and the column sums of that.
  /// out may be g. sum may be null; accumulate adds to it.
  void (*mask_and_sum)(const float* g, const float* y, float* out, float* sum, int64_t rows,
                       int64_t columns, bool accumulate);
  /// y[pixel, :] = relu?(window . kernel + bias).
  void (*conv_forward)(const ConvImage& image, const float* kernel, const float* bias, bool relu,
                       float* y);
  /// kernel_gradient = windows^T . g; accumulate adds.
  void (*conv_kernel_gradient)(const ConvImage& image, const float* g, bool accumulate,
                               float* kernel_gradient);
  /// dx += g . kernel^T at the windows' places. `transposed` is [kh * kw][out][channels], channels
  /// the input's.
  void (*conv_input_gradient)(const ConvImage& image, int64_t channels, const float* g,
                              const float* transposed, float* dx);
  /// Writes [kh * kw][out][channels] from [kh * kw][channels][out].
  void (*transpose_kernel)(const float* kernel, float* transposed, int64_t positions,
                           int64_t channels, int64_t out_channels);
  /// One image: the maxima, and which place of its window each came from.
  void (*max_pool)(const Windows& w, const float* x, float* y, uint8_t* place);
  /// dx is written everywhere.
  void (*max_pool_gradient)(const Windows& w, const float* g, const uint8_t* place, float* dx);
};

namespace base {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

/// The best set that this processor and build have, at most COHORT_MAX_ISA (avx512, avx2, base).
const Kernels& kernels();

}  // namespace cohort::keras::internal
