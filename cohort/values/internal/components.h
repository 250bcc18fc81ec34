// SPDX-License-Identifier: Apache-2.0
//
// What PerReplica and Mirrored share: an immutable array behind a shared pointer.
#pragma once

#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/runtime/device.h"
#include "cohort/values/nest.h"

namespace cohort::internal::values {

/// Errors: InvalidArgument "[operation] expected `replicas` values, got `size`".
void check_components(const char* operation, std::size_t size, int replicas);
/// FailedPrecondition that names what makes one value out of several.
[[noreturn]] void throw_not_one_value(std::size_t size);
[[noreturn]] void throw_out_of_range(const char* operation, std::size_t index, std::size_t size);

/// Where the components of a value are; null: whoever made it did not say.
using DeviceList = std::shared_ptr<const std::vector<Device>>;
/// Errors: Error of kOutOfRange past `size`; FailedPrecondition without devices.
Device device_of_component(const char* operation, const DeviceList& devices, std::size_t index,
                           std::size_t size);

/// An immutable array of T; a copy shares it.
template <class T>
class Components {
 public:
  Components() = default;
  explicit Components(std::vector<T> values)
      : values_(std::make_shared<const std::vector<T>>(std::move(values))) {}
  std::size_t size() const { return values_ ? values_->size() : 0; }
  const T* data() const { return values_ ? values_->data() : nullptr; }
  const T& at(std::size_t i, const char* operation) const {
    if (i >= size()) [[unlikely]]
      throw_out_of_range(operation, i, size());
    return data()[i];
  }

 private:
  std::shared_ptr<const std::vector<T>> values_;
};

/// std::vector<bool> has no bool to refer to.
template <>
class Components<bool> {
 public:
  Components() = default;
  explicit Components(const std::vector<bool>& values)
      : size_(values.size()), values_(std::make_shared<bool[]>(values.size())) {
    for (std::size_t i = 0; i < size_; ++i) values_[i] = values[i];
  }
  std::size_t size() const { return values_ ? size_ : 0; }
  const bool* data() const { return values_.get(); }
  const bool& at(std::size_t i, const char* operation) const {
    if (i >= size()) [[unlikely]]
      throw_out_of_range(operation, i, size());
    return values_[i];
  }

 private:
  std::size_t size_ = 0;
  std::shared_ptr<bool[]> values_;
};

/// Whether a == b compiles to the end: the standard containers declare == for any element.
template <class T>
constexpr bool equality_tested();
template <class T>
inline constexpr bool elements_tested_v = true;
template <class T>
requires requires { typename T::value_type; }
inline constexpr bool elements_tested_v<T> = equality_tested<typename T::value_type>();
template <class... A>
inline constexpr bool elements_tested_v<std::tuple<A...>> = (equality_tested<A>() && ...);
template <class... A>
inline constexpr bool elements_tested_v<std::variant<A...>> = (equality_tested<A>() && ...);
template <class A, class B>
inline constexpr bool elements_tested_v<std::pair<A, B>> =
    equality_tested<std::remove_const_t<A>>() && equality_tested<B>();
template <class T>
constexpr bool equality_tested() {
  if constexpr (elements_tested_v<T>) {
    return requires(const T& a, const T& b) {
      { a == b } -> std::convertible_to<bool>;
    };
  } else {
    return false;
  }
}

/// Whether two leaves are one object.
struct SameLeaf {
  template <class L>
  bool operator()(const L& a, const L& b) const {
    if constexpr (std::is_same_v<L, Tensor> || std::is_same_v<L, Gradient>) {
      return a.is_same(b);
    } else if constexpr (std::is_same_v<L, IndexedSlices>) {
      return a.values.is_same(b.values) && a.indices.is_same(b.indices) &&
             a.dense_shape == b.dense_shape;
    } else if constexpr (equality_tested<L>()) {
      return a == b;
    } else {
      return false;
    }
  }
};

/// Whether two values are one object, nests leaf by leaf.
template <class T>
bool same_object(const T& a, const T& b) {
  SameLeaf same;
  return zip_leaves(a, b, same);
}

}  // namespace cohort::internal::values
