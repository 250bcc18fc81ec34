// SPDX-License-Identifier: Apache-2.0
//
// The types that a layer computes in and keeps its weights in.
//
//   keras::Dense(64, {.dtype = kFloat64});
//   keras::Dense(64, {.dtype = "bfloat16"});
//   keras::set_dtype_policy("mixed_bfloat16");   // of all layers that are made from here on
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
  /// What set_dtype_policy() said, else floatx(), as it is when a layer is built.
  DTypePolicy() = default;
  /// Errors: InvalidArgument for a type that does not float.
  DTypePolicy(DType dtype);  // NOLINT: implicit by design
  /// "float32", "float64", "float16" or "bfloat16"; "mixed_bfloat16" or "mixed_float16": keeps
  /// weights in float32 and computes in the other type.
  /// Errors: InvalidArgument that lists them.
  DTypePolicy(const char* name);         // NOLINT
  DTypePolicy(const std::string& name);  // NOLINT

  DType compute_dtype() const { return types().compute; }
  DType variable_dtype() const { return types().variable; }
  bool is_mixed() const { return compute_dtype() != variable_dtype(); }
  /// Whether layers convert their inputs: where a type was named.
  bool casts() const;
  std::string name() const;
  friend bool operator==(const DTypePolicy& a, const DTypePolicy& b) {
    return a.types() == b.types();
  }

  /// As Keras keeps it in configs; the name alone, as its older versions did, is read, too.
  Config serialize() const;
  static DTypePolicy deserialize(const Config& config);

 private:
  friend void set_dtype_policy(const DTypePolicy& policy);
  struct Types {
    DType compute = kFloat32;
    DType variable = kFloat32;
    bool operator==(const Types&) const = default;
  };
  Types types() const;

  std::optional<Types> types_;
};

/// That of layers that name none. A DTypePolicy() sets it back to floatx().
/// TF: keras.config.set_dtype_policy, mixed_precision.set_global_policy.
void set_dtype_policy(const DTypePolicy& policy);
/// TF: keras.config.dtype_policy.
DTypePolicy dtype_policy();

}  // namespace cohort::keras
