// SPDX-License-Identifier: Apache-2.0
//
// One element of a dataset: a tensor, strings, a dataset, a tuple, or a tuple with names. Rows of
// different lengths are a tuple, too: a ragged element.
//
//   Element e = {image, label};
//   auto [x, y] = e.as<Tensor, Tensor>();
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/data/core/element_spec.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::data {
class DatasetNode;
class DeferredElement;
class PackedStrings;
template <class... T>
struct AsResult;
}  // namespace cohort::internal::data

namespace cohort::data {

class Dataset;

/// A value whose copies share their tensors; cheap to copy. Tensors of an element may be shared
/// with the dataset: do not write into them.
/// A batch that comes from rows in memory is gathered at its first access, by the thread that
/// reads it; rows(), size(), is_tuple() and spec() answer without that.
/// Threads: thread-safe to read.
class Element {
 public:
  /// Holds nothing; every accessor throws.
  Element() = default;
  Element(const Element&) = default;
  Element& operator=(const Element&) = default;
  /// What was moved from holds nothing.
  Element(Element&& other) noexcept : value_(std::exchange(other.value_, {})) {}
  Element& operator=(Element&& other) noexcept {
    value_ = std::exchange(other.value_, {});
    return *this;
  }
  Element(Tensor t);                        // NOLINT: implicit
  Element(std::string s);                   // NOLINT: implicit
  Element(std::vector<std::string> batch);  // NOLINT: implicit
  /// Strings of any rank, in row-major order. Errors: InvalidArgument if their number is not the
  /// shape's.
  Element(std::vector<std::string> values, Shape shape);
  Element(const Dataset& dataset);                // NOLINT: implicit
  Element(std::initializer_list<Element> parts);  ///< A tuple, also of one part.

  static Element tuple(std::vector<Element> parts);
  static Element named(std::vector<std::pair<std::string, Element>> parts);
  /// Rows of different lengths: named components `values`, the rows one after the other (ragged
  /// themselves where rows are), and `row_splits`, where each begins and the last one ends. Batches
  /// are cut and joined by these rows, in tuples with tensors of equally many rows, too. A tuple
  /// that `named` makes with these names is a tuple like others.
  /// Shapes: values [row_splits[-1], ...], row_splits int64 or int32 [rows + 1], from 0 on.
  /// Errors: InvalidArgument otherwise. TF: tf.RaggedTensor.from_row_splits.
  static Element ragged(Element values, Tensor row_splits);
  /// Internal: as ragged, of parts that are known to fit.
  static Element ragged_parts(Element values, Element row_splits);
  /// Internal: strings that lie in one block. Errors: as above.
  static Element packed(internal::data::PackedStrings values, Shape shape);
  /// Internal: an element that is computed when it is first read.
  static Element deferred(std::shared_ptr<const internal::data::DeferredElement> source);
  /// Internal: null, unless this is an element that is still to be computed.
  std::shared_ptr<const internal::data::DeferredElement> uncomputed() const;

  bool has_value() const { return value_.index() != 0; }
  bool is_tuple() const;
  bool is_tensor() const;
  bool is_string() const;  ///< One string, or strings of any shape.
  bool is_dataset() const;
  /// Made by `ragged`, or a part of such a one; false for a tuple that only has these names.
  bool is_ragged() const;
  /// Components of a tuple; 1 for a leaf.
  std::size_t size() const;
  /// Rows of a batch: the first dimension of the first component; -1 if that is a scalar.
  int64_t rows() const;
  /// Names of the components; empty without names.
  const std::vector<std::string>& names() const;

  // Of an element that is about to end, what follows gives values instead of references.

  /// A leaf is its own component 0. Errors: InvalidArgument past the end.
  const Element& operator[](std::size_t i) const&;
  Element operator[](std::size_t i) && { return std::as_const(*this)[i]; }
  /// Errors: InvalidArgument that lists the names.
  const Element& operator[](std::string_view name) const&;
  Element operator[](std::string_view name) && { return std::as_const(*this)[name]; }
  /// Errors: InvalidArgument with the spec unless the element is one tensor.
  const Tensor& tensor() const&;
  Tensor tensor() && { return std::as_const(*this).tensor(); }
  /// A handle of its own, which const Tensor& x = dataset_element() keeps.
  operator Tensor() const { return tensor(); }  // NOLINT: implicit
  /// Errors: InvalidArgument unless the element is one string.
  const std::string& string() const&;
  std::string string() && { return std::as_const(*this).string(); }
  /// In row-major order; spec() has their shape. Errors: InvalidArgument unless the element is
  /// strings of at least one dimension.
  const std::vector<std::string>& strings() const&;
  std::vector<std::string> strings() && { return std::as_const(*this).strings(); }
  /// One string, or what strings() gives, valid as long as this element or a copy lives.
  /// Cost: strings() copies batches out of files at its first call; this does not.
  /// Errors: InvalidArgument unless the element is strings.
  std::vector<std::string_view> string_views() const;

  /// A tuple of datasets is one dataset of tuples, as zip makes it.
  /// Errors: InvalidArgument unless the element is a dataset or such a tuple.
  Dataset dataset() const;
  /// Internal: the description of that dataset.
  std::shared_ptr<const internal::data::DatasetNode> dataset_node() const;

  /// One type: the whole element as a tensor, number, string, tuple or aggregate; several types: a
  /// std::tuple of the components. `#include "cohort/data/dataset.h"` defines it.
  /// Errors: InvalidArgument on another structure, with both sides.
  template <class... T>
  typename internal::data::AsResult<T...>::type as() const;

  ElementSpec spec() const;
  /// Errors: InvalidArgument unless this is a tuple of two components.
  void check_pair() const;
  /// Computes what is deferred, here and in tuples.
  Element materialize() const;
  /// Rows [begin, begin + count) of every component: views of a computed element, and a deferred
  /// element where this one is not computed yet.
  /// Errors: InvalidArgument if a component has no rows, or another number of them.
  Element slice(int64_t begin, int64_t count) const;

 private:
  class Strings;
  struct Tuple {
    std::vector<Element> parts;
    std::vector<std::string> names;
    bool is_ragged = false;
  };
  using DeferredPtr = std::shared_ptr<const internal::data::DeferredElement>;

  /// This element, or what the deferred one computed.
  const Element& resolved() const;
  const Tuple* tuple_part() const;
  const Strings* string_part() const;
  [[noreturn]] void refuse(const char* expected) const;

  std::variant<std::monostate, Tensor, std::shared_ptr<const Strings>, std::shared_ptr<const Tuple>,
               DeferredPtr, std::shared_ptr<const internal::data::DatasetNode>>
      value_;
};

/// As its tensor; strings as "Tensor('a', shape=[], dtype=string)", tuples as (a, b), names as
/// {'x': a}. What is still to be computed is computed.
std::ostream& operator<<(std::ostream& out, const Element& element);

/// Components 0 and 1 of an element of two tensors: for (auto& [x, y] : dataset). Others, and other
/// numbers of them: element.as<...>(), dataset.as<...>().
/// Errors: InvalidArgument for another structure.
template <std::size_t I>
Tensor get(const Element& pair) {
  pair.check_pair();
  return pair[I].tensor();
}

}  // namespace cohort::data

template <>
struct std::tuple_size<cohort::data::Element> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, cohort::data::Element> {
  using type = cohort::Tensor;
};
