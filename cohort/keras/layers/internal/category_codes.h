// SPDX-License-Identifier: Apache-2.0
//
// What preprocessing layers make of the numbers of categories: output_mode.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/keras/config.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// "int", "one_hot", "multi_hot", "count" or "tf_idf": Keras's older names are read, too.
/// Errors: InvalidArgument, prefixed by `who`, that lists `allowed`.
std::string output_mode_of(const char* who, const std::string& given,
                           std::span<const char* const> allowed);

/// Categories in `mode`, of which there are `depth`. Numbers of depth and above count nowhere.
/// Shapes: "int" as it is. "one_hot": [..., 1] to [..., depth], else [...] to [..., depth].
/// "multi_hot" and "count", over the second axis: [b, n, ...] to [b, ..., depth], [n] to [depth].
/// `weights`, of the categories' shape: what each counts; undefined: 1.
/// Errors: InvalidArgument for numbers below 0 in "multi_hot" and "count".
Tensor encode_categories(const Tensor& categories, const std::string& mode, int64_t depth,
                         DType dtype, const Tensor& weights = {});
/// The same of rows of unlike lengths, in "multi_hot" or "count": to [rows, depth].
Tensor encode_ragged_categories(const Tensor& categories, const Tensor& row_splits,
                                const std::string& mode, int64_t depth, DType dtype);

/// Of inputs with kUnknownDim, as above.
Shape encoded_shape(const Shape& input, const std::string& mode, int64_t depth);

/// A config without some members: of classes of which Keras does not write them.
Config config_without(const Config& config, const std::string& member);

}  // namespace cohort::keras::internal
