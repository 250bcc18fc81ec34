// SPDX-License-Identifier: Apache-2.0
//
// How HDF5 files, as h5py writes them, keep the types of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/archive/internal/hdf5_library.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::archive {

/// The type in files; not valid for one that they have not. Within a Hdf5Turn, as all.
Hdf5Id hdf5_type_of(DType dtype);
/// The dtype of an array in a file, whatever its byte order; nothing: tensors have none such.
/// bfloat16 is two opaque bytes here, whoever wrote them.
std::optional<DType> dtype_of_hdf5(hid_t type);
/// What H5Dread is to make of an array of that dtype, stored as `type`.
Hdf5Id memory_type_of(DType dtype, hid_t type);

/// The attribute of an array that keeps its array_sum(). Readers that do not know it pass over it.
inline constexpr const char* kSumAttribute = "cohort.crc32c";
/// The CRC-32C of an array's path, type, shape and bytes: a changed bit may also show another array
/// in its place.
uint32_t array_sum(const std::string& path, DType dtype, const Tensor& values);

}  // namespace cohort::internal::archive
