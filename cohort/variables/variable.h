// SPDX-License-Identifier: Apache-2.0
//
// Variable: a handle to a variable of whatever kind the scope it was made in decides.
//
//   auto scope = strategy.scope();
//   Variable w(zeros({784, 10}), {.name = "w"});
//   strategy.run([&](const Tensor& x) { return x.matmul(w); }, batch);
//
// With R replicas a variable has R components; TensorFlow's rules for who reads and writes which:
//
//   kOnWrite (the default): every component holds the same value.
//     cross-replica   write: every component    read: the first component
//     in a replica    write: kNone the own component; kSum, kMean, kOnlyFirstReplica all
//                     components with the aggregated value (a merge point); read: the own one
//   kOnRead (statistics, metrics): components go their own ways and meet when read.
//     in a replica    read and write: the own component, never any communication
//     cross-replica   read: the sum, mean or first by aggregation; assign: x / R each for kSum,
//                     x each otherwise
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/runtime/device.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/per_replica.h"

namespace cohort {

namespace internal {
class VariableImpl;
}

/// When the components of a variable agree. TF: tf.VariableSynchronization.
enum class Synchronization { kAuto, kNone, kOnWrite, kOnRead };
/// How values of several replicas become one. TF: tf.VariableAggregation.
enum class Aggregation { kNone, kSum, kMean, kOnlyFirstReplica };

/// Of this shard in the whole variable.
struct PartitionInfo {
  Shape shape = {};
  Shape offset = {};
};

/// A tensor, a number, or a function called where the variable lives.
class InitialValue {
 public:
  InitialValue(Tensor value);  // NOLINT: implicit by design
  InitialValue(double value);  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Shape&, DType, const PartitionInfo&> InitialValue(
      F fn)
      : make_(std::move(fn)) {}  // NOLINT

  /// The tensor for these options. Errors: InvalidArgument if a shape or dtype is missing or
  /// contradicts the value.
  Tensor make(const std::optional<Shape>& shape, std::optional<DType> dtype) const;

 private:
  std::function<Tensor(const Shape&, DType, const PartitionInfo&)> make_;
  Tensor value_;
  bool weak_dtype_ = false;  // a number takes the default dtype
};

struct VariableOptions {
  std::string name = {};               ///< Component i > 0 is "name/replica_i".
  std::optional<bool> trainable = {};  ///< Unset: true unless kOnRead.
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
  std::optional<Shape> shape = {};  ///< Needed with a function as initial value.
  std::optional<DType> dtype = {};
  std::function<Tensor(const Tensor&)> constraint = {};  ///< Applied by optimizers after an update.
};

/// Handle to a variable; a copy is the same variable.
/// Threads: replicas write only their component; cross-replica writes need all replicas at rest.
class Variable {
 public:
  Variable() = default;  ///< Empty handle.
  /// Errors: InvalidArgument for kMean with an integer type, kNone synchronization, or a bad shape.
  explicit Variable(InitialValue initial, VariableOptions options = {});
  /// The variable that `impl` implements; for strategies.
  explicit Variable(std::shared_ptr<internal::VariableImpl> impl) : impl_(std::move(impl)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  /// Same variable, not same contents.
  bool operator==(const Variable& other) const {
    return impl_ == other.impl_ || is_same_component(other);
  }

  /// The tensor a read gives here (table above). It shows later writes; clone() for a snapshot.
  Tensor value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable is used as a tensor
  Tensor as_tensor() const { return value(); }

  /// Writes as the table above says. Returns what a read gives now.
  /// Errors: InvalidArgument for another shape.
  Tensor assign(const Tensor& x) const;
  Tensor assign_add(const Tensor& x) const;
  Tensor assign_sub(const Tensor& x) const;
  /// The same number on every replica. Errors: InvalidArgument for kSum with several replicas.
  Tensor assign(double literal) const;
  Tensor assign_add(double literal) const;
  Tensor assign_sub(double literal) const;
  /// Cross-replica: component i gets x[i].
  void assign(const PerReplica<Tensor>& x) const;
  void assign_add(const PerReplica<Tensor>& x) const;
  void assign_sub(const PerReplica<Tensor>& x) const;

  const std::string& name() const;
  const Shape& shape() const;
  DType dtype() const;
  Device device() const;
  bool trainable() const;
  Synchronization synchronization() const;
  Aggregation aggregation() const;

  /// One variable per local component: "w", "w/replica_1", ...
  std::vector<Variable> components() const;
  /// The own component's storage; inside StrategyExtended::update that of the component updated.
  /// Errors: InvalidArgument elsewhere if there are several.
  Tensor& local_tensor() const;
  /// This replica's LibTorch `.grad`; undefined if there is none.
  Tensor grad() const;

  internal::VariableImpl& impl() const;

 private:
  bool is_same_component(const Variable& other) const;

  std::shared_ptr<internal::VariableImpl> impl_;
};

}  // namespace cohort
