// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of Dense: Cohort's kernels where they are faster than LibTorch's, else those, of
// any device.
// Below autograd; the elements of a sum are added in one order, whatever the sizes around them.
#pragma once

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Whether products of bfloat16 matrices of a CPU are those of their float32 copies, which have the
/// same terms and are added in float32, too: where the processor has no units that multiply
/// bfloat16 faster. On Intel's these are AMX; its avx512_bf16 is half as fast as float32, AMD's is
/// twice as fast.
bool multiplies_wide(DType dtype);
bool multiplies_wide(const Tensor& x);

/// out = relu?(x . kernel + bias). Shapes: x [rows, in], kernel [in, columns], out contiguous.
void dense_product(Tensor& out, const Tensor& x, const Tensor& kernel, const Tensor& bias,
                   bool relu);
/// out = x^T . g; accumulate adds. Shapes: x [rows, in], g [rows, columns], out contiguous; on
/// devices it may be of a wider type than they are.
void dense_kernel_gradient(Tensor& out, const Tensor& x, const Tensor& g, bool accumulate);
/// out = g . kernel^T. Shapes: g [rows, columns], kernel [in, columns], out contiguous.
void dense_input_gradient(Tensor& out, const Tensor& g, const Tensor& kernel);
/// Both, which threads then share without a meeting in between; the same bits. dx may not be g.
void dense_gradients(Tensor& dw, Tensor& dx, const Tensor& x, const Tensor& g, const Tensor& kernel,
                     bool accumulate);

}  // namespace cohort::keras::internal
