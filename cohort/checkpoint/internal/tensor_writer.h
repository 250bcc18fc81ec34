// SPDX-License-Identifier: Apache-2.0
//
// A file of tensors as it is being written, and where in it everything went.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cohort/checkpoint/internal/file.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

struct WrittenTensor {
  uint64_t offset = 0;  ///< In the file.
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct WrittenTensors {
  uint64_t bytes = 0;         ///< Of the file.
  uint64_t header_bytes = 0;  ///< From the file's start to the first tensor.
  uint32_t header_crc32c = 0;
  std::map<std::string, WrittenTensor> tensors = {};
};

/// Errors: as save_tensors.
WrittenTensors write_tensors(OutputFile& file, const std::map<std::string, Tensor>& tensors,
                             const std::map<std::string, std::string>& metadata);

}  // namespace cohort::internal::checkpoint
