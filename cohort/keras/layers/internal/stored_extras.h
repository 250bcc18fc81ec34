// SPDX-License-Identifier: Apache-2.0
//
// What files of models keep of some layers besides weights: a vocabulary.
#pragma once

#include <map>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// A layer derives of it, too. Paths are below the layer's own place in the file.
class StoredExtras {
 public:
  virtual ~StoredExtras() = default;
  /// Files in "assets" of a .keras archive: "vocabulary.txt".
  /// Errors: Unimplemented for what Keras's files cannot hold.
  virtual std::map<std::string, std::string> assets() const = 0;
  virtual void set_assets(const std::map<std::string, std::string>& assets) = 0;
  /// Arrays that have names of their own beside the numbered weights: "vars/idf_weights".
  virtual std::map<std::string, Tensor> named_values() const = 0;
  /// Order: ahead of set_assets. Errors: InvalidArgument for one that is missing.
  virtual void set_named_values(const std::map<std::string, Tensor>& values) = 0;
};

}  // namespace cohort::keras::internal
