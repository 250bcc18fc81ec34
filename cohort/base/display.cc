// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/display.h"

#include <array>
#include <cstdio>

namespace cohort::internal::base {

std::string markup_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string fixed_text(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string duration_text(double seconds) {
  if (seconds < 60) return fixed_text(seconds, 1) + " s";
  if (seconds < 3600) return fixed_text(seconds / 60, 1) + " min";
  return fixed_text(seconds / 3600, 1) + " h";
}

std::string rate_text(double rate) { return fixed_text(rate, rate < 100 ? 1 : 0); }

}  // namespace cohort::internal::base
