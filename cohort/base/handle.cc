// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/handle.h"

#include <cctype>
#include <string>
#include <string_view>

#include "cohort/base/check.h"

namespace cohort::internal::base {
namespace {

// "DistributedDataset" as tags of error texts have it: "distributed_dataset".
std::string snake_case(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (upper && !out.empty()) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// What the program called: helpers of a function `map` are named `do_map`, and a constructor has
// the name of its class.
std::string called(std::string_view handle_class, std::string_view function) {
  if (function.empty()) return "";
  if (function.starts_with("do_")) function.remove_prefix(3);
  if (function == handle_class || function.starts_with("operator")) return "";
  function = function.substr(0, function.find('<'));  // compilers add a template's arguments
  return str_cat(".", function);
}

}  // namespace

void refuse_empty_handle(const char* handle_class, const char* operation) {
  const bool is_tag = *operation == '[';
  const bool vowel = std::string_view("AEIOU").find(*handle_class) != std::string_view::npos;
  throw FailedPrecondition(
      str_cat(is_tag ? operation
                     : str_cat("[", snake_case(handle_class), called(handle_class, operation), "]"),
              vowel ? " expected an " : " expected a ", handle_class,
              ", got an empty handle: nothing was put into it, or it was moved to another one; use "
              "that one, or make it anew"));
}

}  // namespace cohort::internal::base
