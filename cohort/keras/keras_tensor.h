// SPDX-License-Identifier: Apache-2.0
//
// KerasTensor: the symbolic tensor of functional models, which only has a shape and a type.
//
//   keras::KerasTensor x = keras::Input({784});
//   keras::KerasTensor hidden = keras::Dense(256, {.activation = "relu"})(x);
//   keras::Model model(x, {keras::Dense(10)(hidden), keras::Dense(1)(hidden)});
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/data/core/element_spec.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {
struct CallNode;
}

namespace cohort::keras {

/// One output of a layer, or a nest of them, with or without names. Cheap to copy; keeps the layers
/// that made it alive. Threads: immutable. TF: keras.KerasTensor.
class KerasTensor {
 public:
  KerasTensor() = default;                                ///< Holds nothing.
  KerasTensor(std::initializer_list<KerasTensor> parts);  ///< A tuple.
  static KerasTensor tuple(std::vector<KerasTensor> parts);
  static KerasTensor named(std::vector<std::pair<std::string, KerasTensor>> parts);
  /// Internal: what `node` gives, of which this is, in order, the outputs from `first` on.
  static KerasTensor of_node(const std::shared_ptr<const internal::CallNode>& node,
                             const ElementSpec& spec, int& first);

  bool has_value() const { return node_ != nullptr || is_tuple_; }
  bool is_tuple() const { return is_tuple_; }
  /// Components of a tuple; 1 for one tensor.
  std::size_t size() const { return is_tuple_ ? parts_.size() : 1; }
  /// Names of the components; empty without names.
  const std::vector<std::string>& names() const { return names_; }
  /// One tensor is its own component 0. Errors: InvalidArgument past the end.
  const KerasTensor& operator[](std::size_t i) const;
  /// Errors: InvalidArgument that lists the names.
  const KerasTensor& operator[](std::string_view name) const;
  /// The tensors of a nest, in order; the tensor itself.
  std::vector<KerasTensor> flat() const;
  ElementSpec spec() const;

  /// Of one tensor. Errors, of all: InvalidArgument for a nest or nothing.
  const Shape& shape() const { return leaf().shape; }  ///< With kUnknownDim, as for the batch.
  DType dtype() const { return leaf().dtype; }
  /// Internal: the call that it is an output of, and which one.
  const std::shared_ptr<const internal::CallNode>& node() const;
  int output() const { return output_; }

  /// "<KerasTensor shape=(None, 10), dtype=float32>".
  friend std::ostream& operator<<(std::ostream& out, const KerasTensor& x);

 private:
  const TensorSpec& leaf() const;

  std::shared_ptr<const internal::CallNode> node_;
  int output_ = 0;
  TensorSpec spec_;
  bool is_tuple_ = false;
  std::vector<KerasTensor> parts_;
  std::vector<std::string> names_;
};

/// Arguments of a layer's call in a functional model.
struct SymbolicArgs {
  std::optional<bool> training = {};  ///< Unset: what the call of the model is told.
  KerasTensor mask = {};
  KerasTensor initial_state = {};  ///< Of recurrent layers: {h} or {h, c}.
};

}  // namespace cohort::keras
