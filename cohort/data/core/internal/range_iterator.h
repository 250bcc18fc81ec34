// SPDX-License-Identifier: Apache-2.0
//
// `for (const T& x : range)` over anything with `std::optional<T> next()`.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

namespace cohort::internal::data {

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

/// A range of convert(what the source gives); every pass asks make_source for a new one.
template <class MakeSource, class Convert>
class ConvertedRange {
 public:
  ConvertedRange(MakeSource make_source, Convert convert)
      : make_source_(std::move(make_source)), convert_(std::move(convert)) {}

  auto begin() const {
    Converted source{make_source_(), convert_};
    using T = typename decltype(source.next())::value_type;
    return RangeIterator<T, Converted>(std::move(source));
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  using Source = decltype(std::declval<const MakeSource&>()());
  struct Converted {
    Source source;
    Convert convert;
    auto next() {
      auto value = source.next();
      using T = decltype(convert(*value));
      return value ? std::optional<T>(convert(*value)) : std::nullopt;
    }
  };

  MakeSource make_source_;
  Convert convert_;
};

}  // namespace cohort::internal::data
