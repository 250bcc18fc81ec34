// SPDX-License-Identifier: Apache-2.0
//
// What becomes of members of a config that a class does not know. Internal.
#pragma once

namespace cohort::keras::internal {

/// While it lives, configs that are read on this thread are a file's: what another version of Keras
/// wrote and a class does not know is left out, with a warning that names it. Else it is an error.
/// Threads: bound to one.
class [[nodiscard]] UnknownFieldsWarn {
 public:
  UnknownFieldsWarn();
  ~UnknownFieldsWarn();
  UnknownFieldsWarn(const UnknownFieldsWarn&) = delete;
  UnknownFieldsWarn& operator=(const UnknownFieldsWarn&) = delete;
  static bool is_open();

 private:
  const bool outer_;
};

}  // namespace cohort::keras::internal
