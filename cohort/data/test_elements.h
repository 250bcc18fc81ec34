// SPDX-License-Identifier: Apache-2.0
//
// Elements as texts, and iterators that are saved and restored everywhere, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::testing {

using Make = std::function<Dataset()>;

/// 0 to n - 1 as elements of a function; and as rows in memory, then so.
inline Dataset on_elements(int64_t n) {
  return Dataset::range(n).map([](int64_t x) { return x; });
}
inline std::vector<Dataset> both(int64_t n) { return {Dataset::range(n), on_elements(n)}; }

/// "[0,1]", "(a,[b,c],)".
inline std::string text_of(const Element& e) {
  if (e.is_tuple()) {
    std::string out = "(";
    for (std::size_t i = 0; i < e.size(); ++i) out += text_of(e[i]) + ",";
    return out + ")";
  }
  if (e.is_string()) return e.rows() < 0 ? e.string() : bracketed(e.strings());
  return bracketed(to_vector<int64_t>(e.tensor()));
}

/// The texts of what is left, and of DataLoss errors in between.
inline std::vector<std::string> rest_of(Iterator& it) {
  std::vector<std::string> out;
  for (int i = 0; i < 200; ++i) {
    try {
      const std::optional<Element> e = it.next();
      if (!e) break;
      out.push_back(text_of(*e));
    } catch (const DataLoss& e) {
      out.emplace_back(e.what());
    }
  }
  return out;
}

inline std::vector<std::string> texts_of(const Dataset& dataset) {
  auto it = dataset.make_iterator();
  return rest_of(it);
}

/// From what the first pass of a new pipeline reads at a position, another process goes on.
inline void expect_goes_on(const Make& make, std::size_t position) {
  const Dataset first = make();
  auto it = first.make_iterator();
  for (std::size_t i = 0; i < position; ++i) {
    try {
      it.next();
    } catch (const DataLoss&) {  // Counted as an element.
    }
  }
  const std::string state = it.save();
  const std::vector<std::string> rest = rest_of(it);
  auto resumed = make().make_iterator(state);
  EXPECT_EQ(rest_of(resumed), rest) << "first pass, position " << position;
}

/// Whatever the position, what follows is the same, and saving disturbs nothing.
inline void expect_resumes(const Make& make) {
  const Dataset original = make();
  auto reference = original.make_iterator();
  const std::string start = reference.save();
  const std::vector<std::string> all = rest_of(reference);
  ASSERT_FALSE(all.empty());
  for (std::size_t position = 0; position <= all.size(); ++position) {
    auto it = original.make_iterator(start);
    for (std::size_t i = 0; i < position; ++i) {
      try {
        it.next();
      } catch (const DataLoss&) {  // Counted as an element.
      }
    }
    const std::string state = it.save();
    const std::vector<std::string> expected(all.begin() + static_cast<int64_t>(position),
                                            all.end());
    auto resumed = make().make_iterator(state);
    EXPECT_EQ(rest_of(resumed), expected) << "position " << position;
    EXPECT_EQ(rest_of(it), expected) << "position " << position << ", saved";
    expect_goes_on(make, position);
  }
}

}  // namespace cohort::testing
