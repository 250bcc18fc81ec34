// SPDX-License-Identifier: Apache-2.0
//
// IDX files, the format of the MNIST family: a magic number, dimensions, big-endian values.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::data {

/// The tensor in an IDX file, plain or compressed with gzip. Values of all IDX types: uint8, int8,
/// int16, int32, float32, float64.
/// Errors: Error kNotFound if the file cannot be opened; DataLoss with file, offset and what was
/// expected there if it is damaged, too short or too long.
Tensor read_idx(const std::string& path);

}  // namespace cohort::data
