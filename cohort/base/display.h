// SPDX-License-Identifier: Apache-2.0
//
// Texts and numbers as people are shown them: in HTML, SVG and on terminals.
#pragma once

#include <string>
#include <string_view>

namespace cohort::internal::base {

/// The text as HTML, SVG and Graphviz's labels have it, in elements and in attributes' values: what
/// means something there (&, <, >, both quotes) is escaped.
std::string markup_escaped(std::string_view text);

/// "2.50" of 2.5 and 2 digits behind the point.
std::string fixed_text(double value, int digits);
/// "59.9 s", "1.0 min", "2.5 h".
std::string duration_text(double seconds);
/// What happens so often in a second: "99.9", and from 100 on without a fraction.
std::string rate_text(double rate);

}  // namespace cohort::internal::base
