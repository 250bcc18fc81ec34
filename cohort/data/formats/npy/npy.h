// SPDX-License-Identifier: Apache-2.0
//
// NumPy's files: .npy holds one array, .npz several by name.
//
//   auto arrays = read_npz("mnist.npz");
//   auto train = Dataset::from_tensor_slices({arrays.at("x_train"), arrays.at("y_train")});
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::data {

/// Booleans, integers, floats and complex numbers, of either byte order, in rows or in columns
/// (Fortran order); the tensor is in row-major order.
/// Errors: Error kNotFound for a file that is not there; DataLoss that names the file for one that
/// is damaged; Unimplemented for other types (objects, strings, dates, structures).
/// Cost: a header that asks for more values than the file holds allocates nothing.
Tensor read_npy(const std::string& path);
/// Version 1.0, little-endian, row-major. Errors: Error if the file cannot be written.
void write_npy(const std::string& path, const Tensor& values);

struct NpzOptions {
  /// Of all arrays together. A small archive can be made to stand for any amount of memory.
  int64_t max_bytes = int64_t{16} << 30;
};

/// The arrays of np.savez and np.savez_compressed by their names, checked against their checksums.
/// Errors: as read_npy; DataLoss for members that overlap; Unimplemented for archives that are
///         encrypted or above 4 GB; Error kResourceExhausted beyond max_bytes, before anything is
///         unpacked.
std::map<std::string, Tensor> read_npz(const std::string& path, const NpzOptions& options = {});

}  // namespace cohort::data
