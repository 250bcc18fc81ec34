// SPDX-License-Identifier: Apache-2.0
//
// How HDF5 files, as h5py writes them, keep the types of tensors.
#pragma once

#include <optional>

#include "cohort/archive/internal/hdf5_library.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal {

/// The type in files; not valid for one that they have not. Within a Hdf5Turn, as all.
Hdf5Id hdf5_type_of(DType dtype);
/// The dtype of an array in a file, whatever its byte order; nothing: tensors have none such.
/// bfloat16 is two opaque bytes here, whoever wrote them.
std::optional<DType> dtype_of_hdf5(hid_t type);
/// What H5Dread is to make of an array of that dtype, stored as `type`.
Hdf5Id memory_type_of(DType dtype, hid_t type);

}  // namespace cohort::internal
