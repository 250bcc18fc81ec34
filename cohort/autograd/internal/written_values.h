// SPDX-License-Identifier: Apache-2.0
//
// A backward pass that needs a value which was written meanwhile: LibTorch's error about versions
// of tensors becomes one that says whose value it was.
#pragma once

#include <c10/util/Exception.h>

#include <span>

#include "cohort/variables/variable.h"

namespace cohort::internal::autograd {

/// Throws FailedPrecondition if `error` says that a value was written; else returns. It names the
/// variable of `sources` that alone fits what was written, or "perhaps" all that may be what was
/// viewed. In a replica its own copies are looked at.
void throw_if_written(const char* operation, const c10::Error& error,
                      std::span<const Variable> sources);

/// pass(), where such an error is ours.
template <class Pass>
auto naming_what_was_written(const char* operation, std::span<const Variable> sources,
                             const Pass& pass) {
  try {
    return pass();
  } catch (const c10::Error& error) {
    throw_if_written(operation, error, sources);
    throw;
  }
}

}  // namespace cohort::internal::autograd
