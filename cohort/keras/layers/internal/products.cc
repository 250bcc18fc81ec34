// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/products.h"

#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>

#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::keras::internal {

using cohort::internal::runtime::intra_op_threads;
using cohort::internal::runtime::ProductThreads;
using cohort::internal::runtime::run_pieces;
using cohort::internal::runtime::threads_worth;

namespace {

// Below so many rows, copying the kernel in transposed form takes longer than LibTorch's product.
constexpr int64_t kMinTransposedRows = 8;

bool is_plain(const Tensor& t) {
  return t.scalar_type() == kFloat32 && t.device().is_cpu() && t.is_contiguous();
}

bool own_product(const Tensor& a, const Tensor& b) {
  return kernels().fast_products && is_plain(a) && is_plain(b) && a.numel() > 0 && b.numel() > 0;
}

double operations(int64_t rows, int64_t depth, int64_t columns) {
  return 2.0 * static_cast<double>(rows * depth * columns);
}

int threads_of(int64_t rows, int64_t depth, int64_t columns) {
  return threads_worth(operations(rows, depth, columns), intra_op_threads());
}

// Where part `i` of so many of [0, size) begins, on a multiple of `unit`.
int64_t border(int64_t size, int64_t unit, int64_t i, int64_t parts) {
  const int64_t units = (size + unit - 1) / unit;
  return std::min(size, units * i / parts * unit);
}

// Into how many parts the rows and the columns of a product are cut.
struct Cut {
  int64_t rows, columns;
};

// Multiples of what the kernels work on at once.
constexpr int64_t kRowUnit = 48;
constexpr int64_t kColumnUnit = 64;

// A part copies the columns of the right matrix that it uses, so these are cut first; the gradient
// of a kernel has few terms and many rows, each of which is best written as a whole.
Cut cut_of(const Product& p, int64_t parts) {
  const int64_t row_units = (p.rows + kRowUnit - 1) / kRowUnit;
  const int64_t column_units = (p.columns + kColumnUnit - 1) / kColumnUnit;
  if (p.a_row == 1) {
    const int64_t rows = std::min(parts, row_units);
    return {rows, std::min((parts + rows - 1) / rows, column_units)};
  }
  const int64_t columns = std::min(parts, column_units);
  return {std::min((parts + columns - 1) / columns, row_units), columns};
}

Product part_of(const Product& p, const Cut& cut, int64_t piece) {
  const int64_t i = piece / cut.columns, j = piece % cut.columns;
  const int64_t row = border(p.rows, kRowUnit, i, cut.rows);
  const int64_t column = border(p.columns, kColumnUnit, j, cut.columns);
  Product part = p;
  part.a += row * p.a_row;
  part.b += column * p.b_column;
  part.out += row * p.out_row + column;
  if (p.bias != nullptr) part.bias += column;
  part.rows = border(p.rows, kRowUnit, i + 1, cut.rows) - row;
  part.columns = border(p.columns, kColumnUnit, j + 1, cut.columns) - column;
  return part;
}

// One or two products, the parts of which threads take in turn: one meeting at the end for both. An
// element's sum is the same whatever part it is in, so no bit depends on the threads.
void compute(const Product& p, const Product* second = nullptr) {
  constexpr int kPiecesOfThread = 4;  // so that one that runs takes over from one that does not
  const double all = operations(p.rows, p.depth, p.columns) +
                     (second ? operations(second->rows, second->depth, second->columns) : 0);
  const int threads = threads_worth(all, intra_op_threads());
  if (threads == 1) {
    kernels().product(p);
    if (second) kernels().product(*second);
    return;
  }
  const Cut cut = cut_of(p, threads * kPiecesOfThread);
  const Cut second_cut = second ? cut_of(*second, threads * kPiecesOfThread) : Cut{0, 0};
  const auto first = static_cast<int>(cut.rows * cut.columns);
  run_pieces(first + static_cast<int>(second_cut.rows * second_cut.columns), [&](int piece) {
    kernels().product(piece < first ? part_of(p, cut, piece)
                                    : part_of(*second, second_cut, piece - first));
  });
}

bool owns_input_gradient(const Tensor& g, const Tensor& kernel) {
  return g.size(0) >= kMinTransposedRows && own_product(g, kernel);
}

Product kernel_gradient(Tensor& out, const Tensor& x, const Tensor& g, bool accumulate) {
  return {.a = x.const_data_ptr<float>(),
          .a_row = 1,
          .a_column = x.size(1),
          .b = g.const_data_ptr<float>(),
          .b_row = g.size(1),
          .b_column = 1,
          .out = out.mutable_data_ptr<float>(),
          .out_row = g.size(1),
          .rows = x.size(1),
          .depth = x.size(0),
          .columns = g.size(1),
          .bias = nullptr,
          .relu = false,
          .accumulate = accumulate};
}

Product input_gradient(Tensor& out, const Tensor& g, const Tensor& kernel) {
  return {.a = g.const_data_ptr<float>(),
          .a_row = g.size(1),
          .a_column = 1,
          .b = kernel.const_data_ptr<float>(),
          .b_row = 1,
          .b_column = kernel.size(1),
          .out = out.mutable_data_ptr<float>(),
          .out_row = kernel.size(0),
          .rows = g.size(0),
          .depth = g.size(1),
          .columns = kernel.size(0),
          .bias = nullptr,
          .relu = false,
          .accumulate = false};
}

// On devices LibTorch's libraries are the fast ones, and there is nothing to share between threads.
// One launch where the library has bias and ReLU as a product's epilogue.
void product_on_device(Tensor& out, const Tensor& x, const Tensor& kernel, const Tensor& bias,
                       bool relu) {
  if (!bias.defined()) {
    at::mm_out(out, x, kernel);
    if (relu) out.clamp_min_(0);
  } else if (relu) {
    at::_addmm_activation_out(out, bias, x, kernel);
  } else {
    at::addmm_out(out, bias, x, kernel);
  }
}

// `out` may be of a wider type than the factors, as weights are under mixed precision.
void kernel_gradient_on_device(Tensor& out, const Tensor& x, const Tensor& g, bool accumulate) {
  if (out.scalar_type() != g.scalar_type()) {
    const Tensor product = g.is_cuda() ? at::mm(x.t(), g, out.scalar_type()) : at::mm(x.t(), g);
    accumulate ? out.add_(product) : out.copy_(product);
  } else if (accumulate) {
    at::addmm_out(out, out, x.t(), g);
  } else {
    at::mm_out(out, x.t(), g);
  }
}

#if defined(__x86_64__)
// Clang 14's __builtin_cpu_supports() does not know it.
bool has_amx_bfloat16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 22U)) != 0;
}
#endif

bool multiplies_bfloat16_fast() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel") != 0) return has_amx_bfloat16();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return true;
#endif
}

}  // namespace

bool multiplies_wide(DType dtype) {
  static const bool wide = kernels().fast_products && !multiplies_bfloat16_fast();
  return wide && dtype == kBFloat16;
}

bool multiplies_wide(const Tensor& x) { return x.is_cpu() && multiplies_wide(x.scalar_type()); }

void dense_product(Tensor& out, const Tensor& x, const Tensor& kernel, const Tensor& bias,
                   bool relu) {
  if (!out.is_cpu()) return product_on_device(out, x, kernel, bias, relu);
  const float* shift = bias.defined() && is_plain(out) ? bias.const_data_ptr<float>() : nullptr;
  if (own_product(x, kernel)) {
    compute({.a = x.const_data_ptr<float>(),
             .a_row = x.size(1),
             .a_column = 1,
             .b = kernel.const_data_ptr<float>(),
             .b_row = kernel.size(1),
             .b_column = 1,
             .out = out.mutable_data_ptr<float>(),
             .out_row = out.size(1),
             .rows = out.size(0),
             .depth = x.size(1),
             .columns = out.size(1),
             .bias = shift,
             .relu = relu,
             .accumulate = false});
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
  if (!out.is_cpu()) return kernel_gradient_on_device(out, x, g, accumulate);
  if (own_product(x, g)) return compute(kernel_gradient(out, x, g, accumulate));
  const ProductThreads threads(threads_of(x.size(0), x.size(1), g.size(1)));
  if (accumulate) {
    at::addmm_out(out, out, x.t(), g);
  } else {
    at::mm_out(out, x.t(), g);
  }
}

void dense_input_gradient(Tensor& out, const Tensor& g, const Tensor& kernel) {
  if (!out.is_cpu()) {
    at::mm_out(out, g, kernel.t());
    return;
  }
  if (owns_input_gradient(g, kernel)) return compute(input_gradient(out, g, kernel));
  const ProductThreads threads(threads_of(g.size(0), g.size(1), kernel.size(0)));
  at::mm_out(out, g, kernel.t());
}

void dense_gradients(Tensor& dw, Tensor& dx, const Tensor& x, const Tensor& g, const Tensor& kernel,
                     bool accumulate) {
  if (own_product(x, g) && owns_input_gradient(g, kernel)) {
    const Product second = input_gradient(dx, g, kernel);
    return compute(kernel_gradient(dw, x, g, accumulate), &second);
  }
  dense_kernel_gradient(dw, x, g, accumulate);
  dense_input_gradient(dx, g, kernel);
}

}  // namespace cohort::keras::internal
