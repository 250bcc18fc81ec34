// SPDX-License-Identifier: Apache-2.0
//
// One write to one tensor: what all kinds of variables do with each of their copies.
#pragma once

#include <vector>

#include "cohort/variables/variable_impl.h"

namespace cohort::internal::variables {

/// "[variable.assign_add] ", for error texts.
const char* operation_name(Write kind);

/// Broadcasts `x` and converts it to the tensor's dtype; records nothing.
void write_tensor(Tensor& to, Write kind, const Tensor& x);

/// Errors: InvalidArgument for integers that the dtype, another one of integers, cannot hold; a
/// conversion would cut them without a word.
void check_integers(const char* operation, DType dtype, const Tensor& x);

/// The number in the dtype. Errors: InvalidArgument unless the dtype can hold it.
Tensor number_of(const char* operation, double number, DType dtype, const Shape& shape = {});

/// `whole` / count each, so that they add up to it in their order, bit by bit: where rounding would
/// lose something the first one takes the rest. Integers are shared out, the first get the
/// remainder.
std::vector<Tensor> shares_of(const Tensor& whole, int count);

}  // namespace cohort::internal::variables
