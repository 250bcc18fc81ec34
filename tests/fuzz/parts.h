// SPDX-License-Identifier: Apache-2.0
//
// What targets share: files in memory, and checks that end the run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error.h"

namespace cohort::fuzz {

/// A file with these bytes; it lives until the next call.
const std::string& memory_file(std::string_view bytes);

/// A file for a writer to make, and its bytes when it is made; it is gone then.
std::string temporary_file();
std::string taken(const std::string& path);

/// Ends the run: libFuzzer keeps the input.
[[noreturn]] void broken(const std::string& what);

/// The input's first byte, which chooses options; 0 if there is none.
inline uint8_t take_choice(std::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto choice = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return choice;
}

/// Runs `f`; Cohort's errors are what bad bytes may lead to, but those of its own invariants not.
template <class F>
bool survives(const F& f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) broken(e.what());
    return false;
  }
}

}  // namespace cohort::fuzz
