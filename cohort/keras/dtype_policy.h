// SPDX-License-Identifier: Apache-2.0
//
// The types that a layer computes in and keeps its weights in.
//
//   keras::Dense(64, {.dtype = kFloat64});
//   keras::Dense(64, {.dtype = "bfloat16"});
//   keras::set_dtype_policy("mixed_bfloat16");   // of all layers that are made from here on,
//                                                // whenever they are built
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "cohort/keras/fields.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// The dtype of layers that name none and are made from here on; float32 unless set.
/// TF: keras.config.set_floatx.
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
  /// None named. A layer that is made with it takes what set_dtype_policy() said by then, else
  /// floatx(), and keeps that; asked by itself, it says what is set now.
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
  /// Whether layers convert their inputs: where a type was named, by them or set_dtype_policy().
  bool casts() const;
  std::string name() const;
  /// As it is now, whatever is set later.
  DTypePolicy settled() const;
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
  bool casts_ = true;  // false: settled where nobody had named a type
};

/// That of layers that name none and are made from here on. A DTypePolicy() sets it back to
/// floatx().
/// TF: keras.config.set_dtype_policy, mixed_precision.set_global_policy.
void set_dtype_policy(const DTypePolicy& policy);
/// TF: keras.config.dtype_policy.
DTypePolicy dtype_policy();

namespace internal {
/// Of a layer's options: who writes them, and makes layers of its own by them, has the policy of
/// this moment, too.
template <class C>
C with_settled_policy(C options) {
  if constexpr (std::same_as<decltype(options.dtype), DTypePolicy>) {
    options.dtype = options.dtype.settled();
  }
  return options;
}
}  // namespace internal

}  // namespace cohort::keras
