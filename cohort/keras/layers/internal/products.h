// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of Dense: Cohort's kernels where they are faster than LibTorch's, else those, of
// any device.
// Below autograd; the elements of a sum are added in one order, whatever the sizes around them.
#pragma once

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

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
