// SPDX-License-Identifier: Apache-2.0
//
// Values and nests as text, in Python's notation: (a, b), [a, b], {'key': a}, 'text', None.
#pragma once

#include <concepts>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include "cohort/values/internal/nest_parts.h"

namespace cohort::internal::values {

void print_text(std::ostream& out, std::string_view text);
/// 'text', with a backslash before quotes.
void print_quoted(std::ostream& out, std::string_view text);

template <class T>
concept Streamable = requires(std::ostream& out, const T& value) {
  { out << value } -> std::convertible_to<std::ostream&>;
};

template <class T>
void print_value(std::ostream& out, const T& value);

/// Values with commas between them.
class Separated {
 public:
  explicit Separated(std::ostream& out) : out_(out) {}
  template <class T>
  void add(const T& value) {
    if (any_) print_text(out_, ", ");
    any_ = true;
    print_value(out_, value);
  }

 private:
  std::ostream& out_;
  bool any_ = false;
};

template <class T>
void print_value(std::ostream& out, const T& value) {
  constexpr NestKind kind = nest_kind<T>();
  if constexpr (std::is_same_v<T, bool>) {
    print_text(out, value ? "True" : "False");
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    print_quoted(out, value);
  } else if constexpr (std::is_same_v<T, Tensor>) {
    runtime::print_tensor(out, value);
  } else if constexpr (is_tuple_v<T> || (kind == NestKind::kTied && !Streamable<T>)) {
    print_text(out, "(");
    Separated parts(out);
    std::apply([&](const auto&... part) { (parts.add(part), ...); }, members_of(value));
    print_text(out, ")");
  } else if constexpr (kind == NestKind::kRange) {
    print_text(out, "[");
    Separated parts(out);
    for (const auto& part : value) parts.add(part);
    print_text(out, "]");
  } else if constexpr (kind == NestKind::kMap) {
    print_text(out, "{");
    bool first = true;
    for_each_entry(value, [&](const std::string& key, const auto& part) {
      if (!first) print_text(out, ", ");
      first = false;
      print_quoted(out, key);
      print_text(out, ": ");
      print_value(out, part);
    });
    print_text(out, "}");
  } else if constexpr (kind == NestKind::kOptional) {
    if (!value) return print_text(out, "None");
    print_value(out, *value);
  } else if constexpr (Streamable<T>) {
    out << value;
  } else {
    print_text(out, "<object>");
  }
}

/// "Name:{\n  0: ...,\n  1: ...\n}" of a PerReplica or Mirrored.
template <class C>
std::ostream& print_components(std::ostream& out, std::string_view name, const C& components) {
  print_text(out, name);
  print_text(out, ":{");
  for (std::size_t i = 0; i < components.size(); ++i) {
    print_text(out, i == 0 ? "\n  " : ",\n  ");
    print_value(out, i);
    print_text(out, ": ");
    print_value(out, components.begin()[i]);
  }
  print_text(out, components.size() == 0 ? "}" : "\n}");
  return out;
}

}  // namespace cohort::internal::values
