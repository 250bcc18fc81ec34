// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/notation.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace cohort::conformance {
namespace {

constexpr std::string_view kSigns = "[](){}|,;:";
constexpr double kTolerance = 1e-6;

bool is_sign(std::string_view part) {
  return part.size() == 1 && kSigns.find(part[0]) != std::string_view::npos;
}

// Signs alone, everything between them and spaces in one piece; views of `text`.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      ++i;
    } else if (kSigns.find(text[i]) != std::string_view::npos) {
      parts.push_back(text.substr(i++, 1));
    } else {
      std::size_t end = i;
      while (end < text.size() && text[end] != ' ' &&
             kSigns.find(text[end]) == std::string_view::npos) {
        ++end;
      }
      parts.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return parts;
}

std::optional<double> number_in(std::string_view part) {
  double value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return value;
}

bool same_part(std::string_view expected, std::string_view seen) {
  const auto a = number_in(expected), b = number_in(seen);
  if (a && b) return std::abs(*a - *b) <= kTolerance;
  return expected == seen;
}

}  // namespace

bool matches(std::string_view expected, std::string_view seen) {
  const auto a = parts_of(expected), b = parts_of(seen);
  if (a.empty() || a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_part(a[i], b[i])) return false;
  }
  return true;
}

std::vector<std::string> mutations(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view part : parts_of(text)) {
    if (is_sign(part)) continue;
    const auto number = number_in(part);
    const auto at = static_cast<std::size_t>(part.data() - text.data());
    out.push_back(std::string(text.substr(0, at)) +
                  (number ? std::to_string(*number + 0.001) : std::string(part) + "x") +
                  std::string(text.substr(at + part.size())));
  }
  return out;
}

}  // namespace cohort::conformance
