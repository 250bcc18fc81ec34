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

/// An LSTM over a sequence; a step's rows lie one after the other, gates are i, f, c, o.
struct LSTMSequence {
  int64_t steps, rows, units;
  float* gates;       ///< [steps, rows, 4 units]: inputs' products with bias, then the activations.
  float* state;       ///< [steps + 1, rows, units], the first is given.
  float* carry;       ///< The same.
  float* tanh_carry;  ///< [steps, rows, units], of the carries behind the steps.
  const bool* mask;   ///< [steps, rows], which count; or null: all do.
  float* output;      ///< [steps, rows, units] with a mask, else null: the states.
  bool zero_output;   ///< Where a row does not count; else its last output stays.
};

/// The way back. Pointers into `sequence` are read only.
struct LSTMGradients {
  LSTMSequence sequence;
  const float* transposed;  ///< Of the recurrent kernel: [4 units, units].
  const float* output;      ///< Of the output of step t and row r at [t * step + r * row]; or null.
  int64_t output_step, output_row;
  bool last_only;  ///< Only the last step has one.
  float* state;    ///< [2, rows, units]: of the last state; ends in state[steps % 2].
  float* carry;    ///< [rows, units]: of the last carry, then of the first.
  float* carried;  ///< [rows, units] of zeros where outputs stay, else null.
  float* gates;    ///< [steps, rows, 4 units]: ahead of the activations.
};

/// relu?(x * scale + shift) over [rows, columns]; mean, scale and shift are the columns'. Where
/// only y is asked for, mean may be null.
struct NormalizedRows {
  const float* x;
  int64_t rows, columns;
  const float* mean;
  const float* scale;
  const float* shift;
  bool relu;
};

/// What the gradient of x has besides scale * g: slope * (x - mean) + offset.
struct NormalizedGradient {
  const float* slope;
  const float* offset;
};

struct Kernels {
  int64_t lanes;       ///< Floats of a vector.
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
  /// A recurrent kernel [units, 4 units] in the order in which lstm_forward reads it:
  /// [units in vectors, rounded up][units][4][lanes].
  void (*lstm_pack)(const float* recurrent, int64_t units, float* packed);
  /// Rows [first, last) of all steps; their bits depend on no other rows.
  void (*lstm_forward)(const LSTMSequence& sequence, const float* packed, int64_t first,
                       int64_t last);
  void (*lstm_backward)(const LSTMGradients& gradients, int64_t first, int64_t last);
  /// The columns' means and sums of squared deviations from them. Reads x twice.
  void (*moments)(const float* x, int64_t rows, int64_t columns, float* mean, float* squares);
  void (*normalize)(const NormalizedRows& in, float* y);
  /// The columns' sums of the gradient ahead of ReLU, and of that times (x - mean).
  void (*normalized_sums)(const NormalizedRows& in, const float* g, float* sum, float* product);
  /// dx may be g.
  void (*normalized_gradient)(const NormalizedRows& in, const float* g,
                              const NormalizedGradient& by, float* dx);
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
