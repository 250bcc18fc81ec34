// SPDX-License-Identifier: Apache-2.0
//
// JSON out of files that may be damaged, or made to harm. For sources only: it includes the JSON
// library.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace cohort::internal::checkpoint {

/// What is wrong with a text, and where in it. Not an Error: its catcher knows the file.
struct BadJson {
  std::size_t byte = 0;
  std::string text;
};

/// Objects and arrays nested in each other up to `deepest`; each key once in the outermost two
/// levels. Cost: linear; the library's own parser with a callback is not. Errors: BadJson.
nlohmann::json parse_json(std::string_view text, std::size_t deepest);

}  // namespace cohort::internal::checkpoint
