// SPDX-License-Identifier: Apache-2.0
//
// What weights are projected onto after each update.
//
//   keras::Dense(64, {.kernel_constraint = keras::MaxNorm(2)});
//   keras::Dense(64, {.kernel_constraint = "non_neg"});
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "cohort/base/callable.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// Derive to write a constraint with a config. Threads: immutable. TF:
/// keras.constraints.Constraint.
class ConstraintBase : public Serializable {
 public:
  using Kind = ConstraintBase;
  static constexpr const char* kKind = "Constraint";
  static void base_fields(auto&, auto&&) {}

  virtual Tensor project(const Tensor& weight) const = 0;
};

/// A name ("non_neg", "max_norm", "unit_norm", "min_max_norm"), one of the functions below, or any
/// callable Tensor -> Tensor. Threads: immutable.
class Constraint : public internal::ObjectHandle<ConstraintBase> {
 public:
  Constraint() = default;               ///< None.
  Constraint(std::nullptr_t) {}         // NOLINT: implicit by design
  Constraint(const char* name);         // NOLINT
  Constraint(const std::string& name);  // NOLINT
  template <std::derived_from<ConstraintBase> C>
  Constraint(std::shared_ptr<C> object) : ObjectHandle(std::move(object)) {}  // NOLINT
  /// An empty std::function is none.
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> Constraint(F project)  // NOLINT
      : Constraint(of_function(std::move(project))) {}
  // Copied where it is moved: what was moved from must not read as none.
  Constraint(const Constraint&) = default;
  Constraint& operator=(const Constraint&) = default;

  explicit operator bool() const { return object_ != nullptr; }
  /// Errors: FailedPrecondition for none.
  Tensor operator()(const Tensor& weight) const;
  /// What variables take; empty: none.
  std::function<Tensor(const Tensor&)> function() const;
  /// A name, what serialize() gives, or null. TF: keras.constraints.deserialize.
  static Constraint deserialize(const Config& config);

 private:
  static Constraint of_function(std::function<Tensor(const Tensor&)> project);
};

/// Negative values become 0. TF: keras.constraints.NonNeg, as the next three.
Constraint NonNeg();
/// Scales down what has a norm above `max_value`, along `axis`.
Constraint MaxNorm(double max_value = 2, int64_t axis = 0);
/// Scales to a norm of 1 along `axis`.
Constraint UnitNorm(int64_t axis = 0);
struct MinMaxNormOptions {
  double min_value = 0;
  double max_value = 1;
  double rate = 1;  ///< Share of the way that an update goes to the nearest bound.
  int64_t axis = 0;
  static void fields(auto& c, auto&& f) {
    f("min_value", c.min_value);
    f("max_value", c.max_value);
    f("rate", c.rate);
    f("axis", c.axis);
  }
};
/// Scales towards a norm between two bounds along `axis`.
Constraint MinMaxNorm(MinMaxNormOptions options = {});

namespace internal {
template <>
ClassTable& class_table<ConstraintBase>();
}  // namespace internal
}  // namespace cohort::keras
