// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/torch_errors.h"

#include "cohort/base/error.h"

namespace cohort::keras::internal {

std::string torch_text(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

void throw_for(const c10::Error& error, const std::string& text) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    throw Error(ErrorCode::kResourceExhausted, text);
  }
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) throw Unimplemented(text);
  throw InvalidArgument(text);
}

}  // namespace cohort::keras::internal
