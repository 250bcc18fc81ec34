// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's errors as our own.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace cohort::keras::internal {

/// What LibTorch says went wrong: the first line, without the stack trace.
std::string torch_text(const c10::Error& error);

/// Throws `text` in the category of `error`: InvalidArgument, or Unimplemented, or an Error with
/// kResourceExhausted for a lack of memory.
[[noreturn]] void throw_for(const c10::Error& error, const std::string& text);

}  // namespace cohort::keras::internal
