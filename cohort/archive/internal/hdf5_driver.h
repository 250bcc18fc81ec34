// SPDX-License-Identifier: Apache-2.0
//
// libhdf5 reads through CheckedBytes.
#pragma once

#include <exception>

#include "cohort/archive/checked_bytes.h"
#include "cohort/archive/internal/hdf5_library.h"

namespace cohort::internal::archive {

/// What a file is opened on. Nothing must be thrown through the library: it is kept, until whoever
/// begins another read clears it.
struct Hdf5Source {
  CheckedBytes* bytes = nullptr;
  uint64_t content = 0;
  std::exception_ptr thrown = {};
};

/// Not valid for what is no HDF5 file. Within a Hdf5Turn. `source`: outlives the file.
Hdf5Id open_hdf5(Hdf5Source& source);

}  // namespace cohort::internal::archive
