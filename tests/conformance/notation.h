// SPDX-License-Identifier: Apache-2.0
//
// Expected and seen values are texts in one notation, compared part by part:
//
//   2.5   true   "text"   None   [1, 2]   (1, "a")   {x: 1}   InvalidArgument   ok
//   PR(0|1)      a value per replica, or the components of a variable
//   a; b         several things that one case looks at
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort::conformance {

/// True if both read the same: words and signs equal, numbers within 1e-6.
bool matches(std::string_view expected, std::string_view seen);

/// The text with one number or word changed, once for each there is.
std::vector<std::string> mutations(std::string_view text);

}  // namespace cohort::conformance
