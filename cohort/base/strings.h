// SPDX-License-Identifier: Apache-2.0
//
// Text out of parts: str_cat("expected ", 4, " values, got ", n).
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace cohort {

/// Streams every part into one string. For error texts and names, not for hot paths.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// "[2, 3]" for any range of printable values.
template <class Range>
std::string bracketed(const Range& values) {
  std::ostringstream out;
  out << '[';
  bool first = true;
  for (const auto& value : values) {
    if (!first) out << ", ";
    out << value;
    first = false;
  }
  out << ']';
  return std::move(out).str();
}

/// The parts, texts, with `separator` between them.
template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) {
    static_assert(std::is_convertible_v<decltype(part), std::string_view>,
                  "join takes texts; a number would be appended as a character");
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

}  // namespace cohort
