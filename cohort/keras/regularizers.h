// SPDX-License-Identifier: Apache-2.0
//
// Penalties on weights that join the loss.
//
//   keras::Dense(64, {.kernel_regularizer = keras::L2(1e-4)});
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "cohort/base/callable.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// Derive to write a regulariser with a config. Threads: immutable. TF: keras.Regularizer.
class RegularizerBase : public Serializable {
 public:
  using Kind = RegularizerBase;
  static constexpr const char* kKind = "Regularizer";
  static void base_fields(auto&, auto&&) {}

  /// Shapes: a scalar.
  virtual Tensor penalty(const Tensor& weight) const = 0;
};

/// A name ("l1", "l2", "l1_l2", ...), one of the functions below, or any callable Tensor -> scalar.
/// Threads: immutable.
class Regularizer : public internal::ObjectHandle<RegularizerBase> {
 public:
  Regularizer() = default;               ///< None.
  Regularizer(std::nullptr_t) {}         // NOLINT: implicit by design, as the next
  Regularizer(const char* name);         // NOLINT: implicit by design
  Regularizer(const std::string& name);  // NOLINT
  template <std::derived_from<RegularizerBase> R>
  Regularizer(std::shared_ptr<R> object) : ObjectHandle(std::move(object)) {}  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> Regularizer(F penalty)  // NOLINT
      : Regularizer(of_function(
            cohort::internal::base::checked_function("[regularizer]", std::move(penalty)))) {}
  // Copied where it is moved: what was moved from must not read as none.
  Regularizer(const Regularizer&) = default;
  Regularizer& operator=(const Regularizer&) = default;

  explicit operator bool() const { return object_ != nullptr; }
  /// Errors: FailedPrecondition for none.
  Tensor operator()(const Tensor& weight) const;
  /// A name, what serialize() gives, or null. TF: keras.regularizers.deserialize.
  static Regularizer deserialize(const Config& config);

 private:
  static Regularizer of_function(std::function<Tensor(const Tensor&)> penalty);
};

/// factor * sum |w|.
Regularizer L1(double factor = 0.01);
/// factor * sum w^2.
Regularizer L2(double factor = 0.01);
/// Both. (The name "l1_l2" means 0.01 of each.)
Regularizer L1L2(double l1 = 0, double l2 = 0);

enum class OrthogonalMode { kRows, kColumns };
template <>
struct ConfigValue<OrthogonalMode> {
  static Config write(OrthogonalMode value);
  static OrthogonalMode read(const Config& config);
};
/// factor * the mean of |cosine| between any two rows, or columns. Shapes: a weight of 2 axes.
/// Errors: InvalidArgument for another rank, when it is used.
Regularizer OrthogonalRegularizer(double factor = 0.01,
                                  OrthogonalMode mode = OrthogonalMode::kRows);

namespace internal {
template <>
ClassTable& class_table<RegularizerBase>();
}  // namespace internal
}  // namespace cohort::keras
