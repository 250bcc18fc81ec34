// SPDX-License-Identifier: Apache-2.0
//
// Elements as text.
#include <algorithm>
#include <ostream>

#include "cohort/base/strings.h"
#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/values/internal/print.h"

namespace cohort::data {
namespace {

constexpr std::size_t kShownStrings = 10;

void print_strings(std::ostream& out, const Element& element) {
  const Shape shape = element.spec().leaf().shape;
  out << "Tensor(";
  if (shape.empty()) {
    internal::values::print_quoted(out, element.string());
  } else {
    const std::vector<std::string_view> all = element.string_views();
    out << '[';
    for (std::size_t i = 0; i < std::min(all.size(), kShownStrings); ++i) {
      if (i > 0) out << ' ';
      internal::values::print_quoted(out, all[i]);
    }
    out << (all.size() > kShownStrings ? " ...]" : "]");
  }
  out << ", shape=" << bracketed(shape) << ", dtype=string)";
}

void print_tuple(std::ostream& out, const Element& element) {
  const std::vector<std::string>& names = element.names();
  out << (names.empty() ? '(' : '{');
  for (std::size_t i = 0; i < element.size(); ++i) {
    if (i > 0) out << ", ";
    if (!names.empty()) {
      internal::values::print_quoted(out, names[i]);
      out << ": ";
    }
    out << element[i];
  }
  // As Python, so that a tuple of one is none in parentheses.
  if (names.empty() && element.size() == 1) out << ',';
  out << (names.empty() ? ')' : '}');
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Element& element) {
  if (!element.has_value()) return out << "Element()";
  if (element.is_tuple()) {
    print_tuple(out, element);
  } else if (element.is_string()) {
    print_strings(out, element);
  } else if (element.is_dataset()) {
    out << element.dataset_node()->to_string();
  } else {
    internal::runtime::print_tensor(out, element.tensor());
  }
  return out;
}

}  // namespace cohort::data
