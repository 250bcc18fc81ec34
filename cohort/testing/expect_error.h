// SPDX-License-Identifier: Apache-2.0
//
// An error is as good as its text: expects the type, and words of the text.
//
//   expect_error<InvalidArgument>({"[strategy.run] expected 2 values", "got 3"}, [&] { ... });
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

namespace cohort::testing {

/// Fails the test unless f throws an E whose what() has each of the words.
template <class E, class F>
void expect_error(std::initializer_list<std::string_view> words, F&& f) {
  try {
    f();
  } catch (const E& e) {
    const std::string_view text = e.what();
    for (const std::string_view word : words) {
      EXPECT_NE(text.find(word), std::string_view::npos) << word << " is not in: " << text;
    }
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected " << *words.begin();
}

/// What f says when it throws an E.
template <class E = std::exception, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace cohort::testing
