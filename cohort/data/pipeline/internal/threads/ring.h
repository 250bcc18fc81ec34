// SPDX-License-Identifier: Apache-2.0
//
// A queue that keeps its memory.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::internal::data {

/// First in, first out. Cost: allocates only when it holds more than ever before.
template <class T>
class Ring {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// The i-th from the front; there has to be one.
  T& operator[](std::size_t i) { return items_[place(i)]; }
  const T& operator[](std::size_t i) const { return items_[place(i)]; }
  T& front() { return items_[head_]; }

  /// Until it holds `count`, push_back allocates nothing.
  void reserve(std::size_t count) {
    while (items_.size() < count) grow();
  }
  void push_back(T item) {
    if (size_ == items_.size()) grow();
    items_[place(size_)] = std::move(item);
    ++size_;
  }
  /// What was in front. Nothing of it stays behind.
  T pop_front() {
    T item = std::exchange(items_[head_], T{});
    head_ = place(1);
    --size_;
    return item;
  }

 private:
  std::size_t place(std::size_t i) const { return (head_ + i) & (items_.size() - 1); }
  void grow() {
    std::vector<T> wider(items_.empty() ? 8 : 2 * items_.size());
    for (std::size_t i = 0; i < size_; ++i) wider[i] = std::move((*this)[i]);
    items_ = std::move(wider);
    head_ = 0;
  }

  std::vector<T> items_;  ///< A power of two of them.
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace cohort::internal::data
