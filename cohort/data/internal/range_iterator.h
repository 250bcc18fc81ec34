// SPDX-License-Identifier: Apache-2.0
//
// `for (const T& x : range)` over anything with `std::optional<T> next()`.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

namespace cohort::internal {

/// An input iterator that owns its source; the end is std::default_sentinel.
template <class T, class Source>
class RangeIterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;

  explicit RangeIterator(Source source) : source_(std::move(source)), value_(source_.next()) {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }
  RangeIterator& operator++() {
    // The last element's memory is free for the next one.
    value_.reset();
    value_ = source_.next();
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !value_.has_value(); }

 private:
  Source source_;
  std::optional<T> value_;
};

}  // namespace cohort::internal
