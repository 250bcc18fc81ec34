// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/history.h"

#include <ostream>

#include "cohort/base/check.h"

namespace cohort::keras {

const std::vector<double>& HistoryValues::at(const std::string& name) const& {
  const auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string> names;
  for (const auto& entry : *this) names.push_back(entry.first);
  const bool not_validated = name.starts_with("val_") && contains(name.substr(4));
  throw InvalidArgument(str_cat(
      "[history] expected one of ", bracketed(names), ", got \"", name, "\"",
      names.empty() ? ": no epoch has ended" : "",
      not_validated ? ": without validation_data there are no values of a validation" : ""));
}

std::ostream& operator<<(std::ostream& out, const HistoryValues& values) {
  std::vector<std::string> parts;
  for (const auto& [name, numbers] : values) {
    parts.push_back(str_cat("'", name, "': ", bracketed(numbers)));
  }
  return out << '{' << join(parts, ", ") << '}';
}

std::ostream& operator<<(std::ostream& out, const History& history) {
  return out << history.history;
}

}  // namespace cohort::keras
