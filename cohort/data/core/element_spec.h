// SPDX-License-Identifier: Apache-2.0
//
// What the elements of a dataset look like: structure, dtypes and shapes.
//
//   (image uint8[28,28], label int64[])      as to_string() writes it; ? is an unknown dimension
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::data {

class Element;

/// One component. `shape` has kUnknownDim where it varies.
struct TensorSpec {
  Shape shape = {};
  DType dtype = kFloat32;  ///< DType::Undefined where it is not known.
  bool known_rank = true;  ///< False: nothing is known of the shape.
  bool is_string = false;  ///< Strings; dtype says nothing.

  /// A tensor of which nothing is known, as a map function returns it.
  static TensorSpec unknown();
  static TensorSpec strings(Shape shape = {});
  /// "float32[2,?]", "string[]"; "?" where nothing is known.
  std::string to_string() const;
  bool operator==(const TensorSpec&) const = default;
};

/// A tree of components: nothing known, a leaf, a dataset, or a tuple of specs with or without
/// names.
/// Threads: immutable.
class ElementSpec {
 public:
  /// Nothing is known, not even the structure.
  ElementSpec() = default;
  ElementSpec(TensorSpec leaf);  // NOLINT: implicit, a leaf is a spec.

  static ElementSpec tuple(std::vector<ElementSpec> parts);
  static ElementSpec named(std::vector<std::pair<std::string, ElementSpec>> parts);
  /// A component that is a dataset of such elements.
  static ElementSpec dataset(ElementSpec element);
  /// What Element::ragged makes: `values` of all rows, and int64[rows + 1].
  static ElementSpec ragged(ElementSpec values, int64_t rows = kUnknownDim);
  /// Internal: the same with these row_splits.
  static ElementSpec ragged_parts(ElementSpec values, TensorSpec row_splits);

  bool is_unknown() const { return kind_ == Kind::kUnknown; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_leaf() const { return kind_ == Kind::kLeaf; }
  bool is_dataset() const { return kind_ == Kind::kDataset; }
  /// Whether Element::ragged made it; false for a tuple that only has the same names.
  bool is_ragged() const { return is_ragged_; }
  /// Components of a tuple; 1 for a leaf.
  std::size_t size() const { return is_tuple() ? parts_.size() : 1; }
  /// Errors: InvalidArgument past the end. A leaf is its own component 0.
  const ElementSpec& operator[](std::size_t i) const;
  /// Errors: InvalidArgument unless a leaf.
  const TensorSpec& leaf() const;
  /// Errors: InvalidArgument unless a dataset.
  const ElementSpec& dataset_element() const;
  /// Rows that all components have, as Element::rows counts them; kUnknownDim if the spec does not
  /// say, or if they have none.
  int64_t rows() const;
  /// Names of the components; empty without names.
  const std::vector<std::string>& names() const { return names_; }

  /// The leaves in order; of a dataset, nothing is known.
  std::vector<TensorSpec> flat() const;
  /// Ragged rows as "(values int64[?], row_splits int64[?])"; a tuple that only has these names
  /// with "plain " before it.
  std::string to_string() const;
  /// True if every element of this spec may be `element`: same structure, same dtypes, and shapes
  /// that agree where they are known.
  bool compatible_with(const Element& element) const;
  bool compatible_with(const ElementSpec& other) const;
  /// What is known of elements that match either spec.
  /// Errors: InvalidArgument with both sides if structure, dtype or rank differ.
  static ElementSpec common(const std::string& operation, const ElementSpec& a,
                            const ElementSpec& b);

  bool operator==(const ElementSpec&) const = default;

 private:
  enum class Kind { kUnknown, kLeaf, kTuple, kDataset };

  Kind kind_ = Kind::kUnknown;
  TensorSpec leaf_;
  std::vector<ElementSpec> parts_;
  std::vector<std::string> names_;
  bool is_ragged_ = false;
};

/// As to_string().
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);
std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

}  // namespace cohort::data

namespace cohort {
using namespace data;
}
