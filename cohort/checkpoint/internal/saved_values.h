// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint holds.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

/// A value that comes in boxes, which fill it.
struct SavedPieces {
  struct Piece {
    Shape offset;
    Tensor tensor;
  };
  DType dtype = kFloat32;
  Shape shape = {};
  std::vector<Piece> pieces = {};
};

struct SavedValues {
  std::map<std::string, Tensor> tensors = {};      ///< By path.
  std::map<std::string, SavedPieces> pieces = {};  ///< By path; of what was read all are whole.
  /// By path; of what is about to be written, and not read yet: see several_writers.h.
  std::map<std::string, TrackedValue> spread = {};
  std::map<std::string, std::string> aliases = {};  ///< Further paths, to those of values.
  /// Objects that might still have got values, had the program gone on.
  std::set<std::string> unfinished = {};
};

}  // namespace cohort::internal::checkpoint
