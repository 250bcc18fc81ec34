// SPDX-License-Identifier: Apache-2.0
//
// Which files hold weights; internal.
#pragma once

#include <string>

#include "cohort/base/check.h"

namespace cohort::internal {

/// Errors: InvalidArgument unless the path ends with .safetensors; Unimplemented for Keras's own
/// formats.
inline void check_weights_path(const char* operation, const std::string& path) {
  if (path.ends_with(".safetensors")) return;
  for (const char* ending : {".weights.h5", ".keras", ".h5"}) {
    if (path.ends_with(ending)) {
      throw Unimplemented(str_cat("[", operation, "] ", path, ": Keras's ", ending,
                                  " files need the saving capability, which is not there yet; "
                                  "weights can be kept in a file that ends with .safetensors"));
    }
  }
  throw InvalidArgument(
      str_cat("[", operation, "] expected a path that ends with .safetensors, ", "got ", path));
}

}  // namespace cohort::internal
