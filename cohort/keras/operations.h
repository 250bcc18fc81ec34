// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic between the symbolic tensors of functional models. Each operation is a node of the
// model, in Keras's files as in Keras itself, and not one of its layers.
//
//   const keras::KerasTensor x = keras::Input({5, 4});
//   const keras::KerasTensor last = keras::ops::get_item(x, {keras::ops::Index::all(), -1});
//   keras::Model model(x, keras::Dense(1)(1 - last * 2));
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/keras/config.h"
#include "cohort/keras/keras_tensor.h"

namespace cohort::keras {

namespace ops {

/// A symbolic tensor or a number. An integer does not change the type of integers.
class Operand {
 public:
  Operand(KerasTensor tensor);  // NOLINT: implicit by design, as all of them
  template <class N>
  requires((std::integral<N> && !std::same_as<N, bool>) || std::floating_point<N>)
      Operand(N number)  // NOLINT
      : number_(number) {}
  /// Empty for a number.
  const KerasTensor& tensor() const { return tensor_; }
  const Config& number() const { return number_; }

 private:
  KerasTensor tensor_;
  Config number_;
};

/// One part of what stands between brackets in Python.
class Index {
 public:
  Index(int64_t at);                        // NOLINT: implicit; negative counts from the end
  Index(int at) : Index(int64_t{at}) {}     // NOLINT
  static Index all() { return slice({}); }  ///< ":".
  /// "start:stop:step". Errors: Unimplemented for a step below 1.
  static Index slice(std::optional<int64_t> start, std::optional<int64_t> stop = {},
                     std::optional<int64_t> step = {});
  static Index ellipsis();  ///< "...": all axes that the others leave.
  static Index new_axis();  ///< "None".
  const Config& config() const { return config_; }

 private:
  explicit Index(Config config) : config_(std::move(config)) {}
  Config config_;
};

/// Shapes: of all but matmul, as NumPy broadcasts; a mask ends here, as in Keras.
/// Errors: of all, InvalidArgument for shapes that do not fit and for two numbers.
KerasTensor add(const Operand& a, const Operand& b);
KerasTensor subtract(const Operand& a, const Operand& b);
KerasTensor multiply(const Operand& a, const Operand& b);
KerasTensor true_divide(const Operand& a, const Operand& b);   ///< Of integers in floatx().
KerasTensor floor_divide(const Operand& a, const Operand& b);  ///< Rounds down, as Python's //.
KerasTensor mod(const Operand& a, const Operand& b);           ///< With the sign of b.
KerasTensor power(const Operand& a, const Operand& b);
/// Shapes: [..., n, k] by [..., k, m]; a vector stands for a row, or a column.
KerasTensor matmul(const KerasTensor& a, const KerasTensor& b);
KerasTensor negative(const KerasTensor& x);
KerasTensor absolute(const KerasTensor& x);
/// x[...] of Python. Errors: InvalidArgument for more axes than there are.
KerasTensor get_item(const KerasTensor& x, const std::vector<Index>& key);

}  // namespace ops

// Those below would hide the operators of tensors from what stands in this namespace.
using cohort::operator+;
using cohort::operator-;
using cohort::operator*;
using cohort::operator/;

/// TF: Python's operators of KerasTensor.
KerasTensor operator+(const KerasTensor& a, const KerasTensor& b);
KerasTensor operator+(const KerasTensor& a, const ops::Operand& b);
KerasTensor operator+(const ops::Operand& a, const KerasTensor& b);
KerasTensor operator-(const KerasTensor& a, const KerasTensor& b);
KerasTensor operator-(const KerasTensor& a, const ops::Operand& b);
KerasTensor operator-(const ops::Operand& a, const KerasTensor& b);
KerasTensor operator*(const KerasTensor& a, const KerasTensor& b);
KerasTensor operator*(const KerasTensor& a, const ops::Operand& b);
KerasTensor operator*(const ops::Operand& a, const KerasTensor& b);
KerasTensor operator/(const KerasTensor& a, const KerasTensor& b);
KerasTensor operator/(const KerasTensor& a, const ops::Operand& b);
KerasTensor operator/(const ops::Operand& a, const KerasTensor& b);
KerasTensor operator-(const KerasTensor& x);

}  // namespace cohort::keras
