// SPDX-License-Identifier: Apache-2.0
//
// Many strings in one block of memory: batches of strings without an allocation for each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::internal::data {

/// Strings one after the other.
class PackedStrings {
 public:
  std::size_t size() const { return ends_.size(); }
  /// Valid until the next string is added.
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }
  std::size_t bytes() const { return bytes_.size(); }

  void reserve(std::size_t count, std::size_t bytes) {
    ends_.reserve(count);
    bytes_.reserve(bytes);
  }
  void add(std::string_view text) {
    bytes_ += text;
    end();
  }
  /// What is appended to these bytes is a string when end() is called; cut() takes it back.
  std::string& open() { return bytes_; }
  std::size_t begin_of_open() const { return ends_.empty() ? 0 : ends_.back(); }
  void end() { ends_.push_back(bytes_.size()); }
  void cut() { bytes_.resize(begin_of_open()); }
  /// Leaves the first `count` strings, if there are more.
  void cut_to(std::size_t count) {
    if (count < ends_.size()) ends_.resize(count);
    cut();
  }

 private:
  std::string bytes_;
  std::vector<std::size_t> ends_;
};

}  // namespace cohort::internal::data
