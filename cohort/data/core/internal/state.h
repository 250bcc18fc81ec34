// SPDX-License-Identifier: Apache-2.0
//
// The position of a pass as bytes: what Iterator::save writes and Iterator::restore reads.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// Appends values; small numbers take one byte.
class StateWriter {
 public:
  void put_int(int64_t value);
  void put_text(std::string_view text);
  /// Computes what is deferred. Tensors are written as values, in row-major order; windows as their
  /// elements. Errors: Unimplemented for other datasets.
  void put_element(const Element& element);
  void put_spec(const ElementSpec& spec);
  /// Class and text of an error that has not reached its reader yet; null: none.
  void put_error(const std::exception_ptr& error);
  /// An element or a row number.
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, Element>) {
      put_element(value);
    } else {
      put_int(value);
    }
  }

  std::string take() && { return std::move(bytes_); }

 private:
  void put_tensor(const Tensor& tensor);
  void put_dataset(const Element& element);

  std::string bytes_;
};

/// Reads what StateWriter wrote. Errors: InvalidArgument if the bytes are not that.
class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : bytes_(bytes) {}

  int64_t get_int();
  /// A number that cannot be negative, at most `most`.
  int64_t get_count(int64_t most);
  bool get_flag() { return get_count(1) != 0; }
  std::string_view get_text();
  Element get_element();
  ElementSpec get_spec();
  std::exception_ptr get_error();
  template <class T>
  T get() {
    if constexpr (std::is_same_v<T, Element>) {
      return get_element();
    } else {
      return get_int();
    }
  }
  /// No state has more parts than bytes.
  int64_t bytes_left() const { return static_cast<int64_t>(bytes_.size()); }
  void expect_end() const;
  [[noreturn]] static void fail();

 private:
  std::string_view take(uint64_t bytes);
  /// And the number of values in it.
  Shape get_shape(int64_t& values);
  Tensor get_tensor();
  Element get_strings();
  TensorSpec get_leaf_spec(bool is_string);
  /// Of what DatasetNode::save_as_element wrote; store/internal/element_file.cc defines it.
  Element get_dataset();

  std::string_view bytes_;
};

}  // namespace cohort::internal::data
