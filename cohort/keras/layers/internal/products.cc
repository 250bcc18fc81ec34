// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::keras::internal {

using cohort::internal::FunctionRef;
using cohort::internal::intra_op_threads;
using cohort::internal::ProductThreads;
using cohort::internal::run_pieces;
using cohort::internal::threads_worth;

namespace {

// Beyond, a block of 64 columns leaves the second-level cache.
constexpr int64_t kMaxDepth = 4096;
// The transposition of the kernel pays from here on.
constexpr int64_t kMinTransposedRows = 128;

bool is_plain(const Tensor& t) {
  return t.scalar_type() == kFloat32 && t.device().is_cpu() && t.is_contiguous();
}

// The kernels work without blocking for caches.
bool own_product(const Tensor& a, const Tensor& b, int64_t depth, int64_t columns) {
  return kernels().fast_products && is_plain(a) && is_plain(b) && depth > 0 && depth <= kMaxDepth &&
         columns % kChannelPack == 0;
}

// Calls body(begin, end) for ranges of the product's rows on as many threads as the work is worth.
// An element's sum is the same whatever range it is in, so no bit depends on the threads.
void for_rows(int64_t rows, double operations_per_row, FunctionRef<void(int64_t, int64_t)> body) {
  constexpr int64_t kTile = 6;        // rows that a kernel works on at once
  constexpr int kPiecesOfThread = 4;  // so that one that runs takes over from one that does not
  const int threads =
      threads_worth(operations_per_row * static_cast<double>(rows), intra_op_threads());
  const int64_t tiles = (rows + kTile - 1) / kTile;
  if (threads == 1 || tiles < 2) return body(0, rows);
  const int64_t pieces = std::min<int64_t>(tiles, threads * kPiecesOfThread);
  run_pieces(static_cast<int>(pieces), [&](int piece) {
    body(tiles * piece / pieces * kTile, std::min(rows, tiles * (piece + 1) / pieces * kTile));
  });
}

// Rows that far apart would share a few sets of the first-level cache.
bool collides(int64_t row_size, int64_t rows) {
  constexpr int64_t kPage = 4096 / sizeof(float);
  return rows > 64 && row_size % kPage == 0;
}

std::vector<int64_t> multiples(int64_t count, int64_t step) {
  std::vector<int64_t> out(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = i * step;
  return out;
}

// A matrix as an image: its rows are the windows, of one run each.
ConvImage rows_image(const Tensor& x, const int64_t* rows, int64_t columns) {
  static constexpr int64_t kFirst = 0;
  return {x.const_data_ptr<float>(), rows, &kFirst, x.size(0), x.size(1), x.size(1), columns};
}

int threads_of(int64_t rows, int64_t depth, int64_t columns) {
  return threads_worth(2.0 * static_cast<double>(rows * depth * columns), intra_op_threads());
}

void forward(const ConvImage& image, const float* kernel, const float* bias, bool relu, float* y) {
  const double row_operations = 2.0 * static_cast<double>(image.tap_count * image.out_channels);
  for_rows(image.pixel_count, row_operations, [&](int64_t begin, int64_t end) {
    ConvImage part = image;
    part.pixels += begin;
    part.pixel_count = end - begin;
    kernels().conv_forward(part, kernel, bias, relu, y + begin * image.out_channels);
  });
}

}  // namespace

void dense_product(Tensor& out, const Tensor& x, const Tensor& kernel, const Tensor& bias,
                   bool relu) {
  const float* shift = bias.defined() && is_plain(out) ? bias.const_data_ptr<float>() : nullptr;
  if (own_product(x, kernel, x.size(1), out.size(1))) {
    const std::vector<int64_t> rows = multiples(x.size(0), x.size(1));
    forward(rows_image(x, rows.data(), out.size(1)), kernel.const_data_ptr<float>(), shift, relu,
            out.mutable_data_ptr<float>());
    return;
  }
  const ProductThreads threads(threads_of(x.size(0), x.size(1), out.size(1)));
  at::mm_out(out, x, kernel);
  if (is_plain(out)) {
    if (!relu && shift == nullptr) return;
    kernels().bias_relu(out.mutable_data_ptr<float>(), shift, out.size(0), out.size(1), relu);
    return;
  }
  if (bias.defined()) out.add_(bias);
  if (relu) out.clamp_min_(0);
}

void dense_kernel_gradient(Tensor& out, const Tensor& x, const Tensor& g, bool accumulate) {
  if (own_product(x, g, x.size(0), g.size(1)) && !collides(x.size(1), x.size(0))) {
    const std::vector<int64_t> rows = multiples(x.size(0), x.size(1));
    const std::vector<int64_t> taps = multiples(x.size(1), 1);
    ConvImage image = rows_image(x, rows.data(), g.size(1));
    image.taps = taps.data();
    const float* gradient = g.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    const double row_operations = 2.0 * static_cast<double>(g.size(0) * g.size(1));
    for_rows(image.tap_count, row_operations, [&](int64_t begin, int64_t end) {
      ConvImage part = image;
      part.taps += begin;
      part.tap_count = end - begin;
      kernels().conv_kernel_gradient(part, gradient, accumulate, to + begin * image.out_channels);
    });
    return;
  }
  const ProductThreads threads(threads_of(x.size(0), x.size(1), g.size(1)));
  if (accumulate) {
    at::addmm_out(out, out, x.t(), g);
  } else {
    at::mm_out(out, x.t(), g);
  }
}

void dense_input_gradient(Tensor& out, const Tensor& g, const Tensor& kernel) {
  const bool own = g.size(0) >= kMinTransposedRows && g.size(1) % kChannelPack == 0 &&
                   own_product(g, kernel, g.size(1), kernel.size(0));
  if (!own) {
    const ProductThreads threads(threads_of(g.size(0), g.size(1), kernel.size(0)));
    at::mm_out(out, g, kernel.t());
    return;
  }
  Tensor transposed = at::empty({kernel.size(1), kernel.size(0)}, kernel.options());
  kernels().transpose_kernel(kernel.const_data_ptr<float>(), transposed.mutable_data_ptr<float>(),
                             1, kernel.size(0), kernel.size(1));
  const std::vector<int64_t> rows = multiples(g.size(0), g.size(1));
  forward(rows_image(g, rows.data(), kernel.size(0)), transposed.const_data_ptr<float>(), nullptr,
          false, out.mutable_data_ptr<float>());
}

}  // namespace cohort::keras::internal
