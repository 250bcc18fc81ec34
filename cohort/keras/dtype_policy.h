// SPDX-License-Identifier: Apache-2.0
//
// The types that a layer computes in and keeps its weights in.
//
//   keras::Dense(64, {.dtype = kFloat64});
//   keras::Dense(64, {.dtype = "bfloat16"});
#pragma once

#include <optional>
#include <string>

#include "cohort/keras/fields.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// The dtype of layers that name none; float32 unless set. TF: keras.config.set_floatx.
void set_floatx(DType dtype);
DType floatx();

/// By name: "int32".
template <>
struct ConfigValue<DType> {
  static Config write(DType value) { return dtype_name(value); }
  static DType read(const Config& config);
};

/// TF: keras.DTypePolicy.
class DTypePolicy {
 public:
  DTypePolicy() = default;  ///< floatx(), as it is when a layer is built.
  /// Errors: InvalidArgument for a type that does not float.
  DTypePolicy(DType dtype);  // NOLINT: implicit by design
  /// "float32", "float64", "float16" or "bfloat16".
  /// Errors: InvalidArgument that lists them; Unimplemented for "mixed_bfloat16" and
  ///         "mixed_float16", where weights and computations have different types.
  DTypePolicy(const char* name);         // NOLINT
  DTypePolicy(const std::string& name);  // NOLINT

  DType compute_dtype() const { return dtype_.value_or(floatx()); }
  DType variable_dtype() const { return dtype_.value_or(floatx()); }
  std::string name() const;
  friend bool operator==(const DTypePolicy& a, const DTypePolicy& b) {
    return a.compute_dtype() == b.compute_dtype();
  }

  /// As Keras keeps it in configs; the name alone, as its older versions did, is read, too.
  Config serialize() const;
  static DTypePolicy deserialize(const Config& config);

 private:
  std::optional<DType> dtype_;
};

}  // namespace cohort::keras
