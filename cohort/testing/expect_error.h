// SPDX-License-Identifier: Apache-2.0
//
// An error is as good as its text: expects the type, and words of the text.
//
//   expect_error<InvalidArgument>({"[strategy.run] expected 2 values", "got 3"}, [&] { ... });
//   expect_error(ErrorCode::kNotFound, {"cannot open", path}, [&] { ... });
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cohort/base/error.h"

namespace cohort::testing {

using Words = std::initializer_list<std::string_view>;

inline void expect_words(std::string_view text, Words words) {
  for (const std::string_view word : words) {
    EXPECT_NE(text.find(word), std::string_view::npos) << word << " is not in: " << text;
  }
}

/// Fails the test unless f throws an E whose what() has each of the words.
template <class E, class F>
void expect_error(Words words, F&& f) {
  try {
    f();
  } catch (const E& e) {
    return expect_words(e.what(), words);
  }
  ADD_FAILURE() << "nothing was thrown" << (words.size() == 0 ? "" : "; expected ")
                << (words.size() == 0 ? "" : *words.begin());
}
/// The same for an Error of this code.
template <class F>
void expect_error(ErrorCode code, Words words, F&& f) {
  expect_error<Error>(words, [&] {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      throw;
    }
  });
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
