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
//     in a replica    write: with kNone the own component alone; with kSum, kMean and
//                     kOnlyFirstReplica every component, with the aggregate of what the replicas
//                     write (a merge point)     read: the own component
//   kOnRead (statistics, metrics): components differ, and are aggregated when read.
//     in a replica    read and write: the own component, without communication
//     cross-replica   read: the components' sum, mean, or the first one, as the aggregation says;
//                     assign(x): with kSum x / R to each (so that it reads as x again), else x
//   Under CentralStorageStrategy a kOnWrite variable has one storage, which all replicas read:
//     in a replica    write: once, with the aggregate (a merge point); with kNone an error
//     cross-replica   write: once; of a value per replica the first one
//
// A checkpoint keeps value() and restores it by assign(), cross-replica: under any strategy, into
// any number of replicas. Only kOnRead with kNone has no one value to keep.
// A variable made outside of every strategy is plain: any replica may read it, but where there are
// several, none may write it.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/handle.h"
#include "cohort/runtime/device.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/indexed_slices.h"
#include "cohort/values/per_replica.h"

namespace cohort {

class Trackable;
namespace internal::variables {
class VariableImpl;

/// True if a double can hold this integer exactly.
template <std::integral I>
constexpr bool is_double(I number) {
  auto bits = static_cast<uint64_t>(number);
  if constexpr (std::is_signed_v<I>) bits = number < 0 ? 0 - bits : bits;
  constexpr int kDigits = std::numeric_limits<double>::digits;
  return bits == 0 || (bits >> std::countr_zero(bits)) >> kDigits == 0;
}
}  // namespace internal::variables

/// When the components of a variable agree: kAuto is kOnWrite, and kNone is refused; the table
/// above has the others. TF: tf.VariableSynchronization.
enum class Synchronization { kAuto, kNone, kOnWrite, kOnRead };
/// How what several replicas write, or hold, becomes one value. TF: tf.VariableAggregation.
enum class Aggregation { kNone, kSum, kMean, kOnlyFirstReplica };

/// Which part of a whole variable an initial value is for. TF: ShardInfo, and the partition_shape
/// and partition_offset of Keras's initializers.
struct PartitionInfo {
  Shape shape = {};   ///< Of the whole variable.
  Shape offset = {};  ///< Where the part begins in it; its extent is the shape that is asked for.
};

/// A tensor, a number, or a function called where the variable lives.
class InitialValue {
 public:
  InitialValue(Tensor value);  // NOLINT: implicit by design
  InitialValue(double value);  // NOLINT
  template <std::integral I>
  InitialValue(I value) : InitialValue(static_cast<double>(value)) {  // NOLINT
    is_rounded_ = !internal::variables::is_double(value);
  }
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Shape&, DType, const PartitionInfo&> InitialValue(
      F fn)
      : make_(internal::base::checked_function("[initial_value]", std::move(fn))) {}  // NOLINT

  /// The tensor for these options. Errors: InvalidArgument if a shape or dtype is missing or
  /// contradicts the value.
  Tensor make(const std::optional<Shape>& shape, std::optional<DType> dtype) const;
  /// A part of that, for variables that are kept in several parts. A function is called for the
  /// part alone; a tensor is cut. Errors: as make(); InvalidArgument for a part outside of the
  /// whole.
  Tensor make_part(const Shape& part, const PartitionInfo& of, std::optional<DType> dtype) const;
  /// "float32 [2, 3]": what make() with these options gives, without making it.
  std::string describe(const std::optional<Shape>& shape, std::optional<DType> dtype) const;

 private:
  std::function<Tensor(const Shape&, DType, const PartitionInfo&)> make_;
  Tensor value_;
  bool weak_dtype_ = false;  // a number takes the default dtype
  bool is_rounded_ = false;  // an integer that no double is equal to
};

struct VariableOptions {
  std::string name = {};               ///< Component i > 0 is "name/replica_i".
  std::optional<bool> trainable = {};  ///< Unset: true unless kOnRead.
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
  std::optional<Shape> shape = {};  ///< Needed with a function as initial value.
  std::optional<DType> dtype = {};
  std::function<Tensor(const Tensor&)> constraint = {};  ///< Applied by optimizers after an update.
  /// Under parameter servers: every worker has a copy, which it alone reads and writes, as
  /// "name/worker_i"; the coordinator reads all of them (read_all). Elsewhere it changes nothing.
  bool per_worker = false;
};

/// Handle to a variable; a copy is the same variable.
/// Threads: a replica writes its own component only; no cross-replica write while replicas run.
class Variable {
 public:
  Variable() = default;  ///< Empty handle.
  /// Inside a run all replicas make one variable together, with replica 0's initial value.
  /// Errors: InvalidArgument for kMean with an integer type, kNone synchronization, or a bad shape;
  ///         FailedPrecondition if replicas differ in name, shape, type or options.
  explicit Variable(InitialValue initial, VariableOptions options = {});
  /// The variable that `impl` implements; for strategies. A template, so that the 0 of Variable(0)
  /// is no null pointer.
  template <std::derived_from<internal::variables::VariableImpl> Impl>
  explicit Variable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  /// Same variable, not same contents.
  bool operator==(const Variable& other) const {
    return impl_ == other.impl_ || is_same_component(other);
  }

  /// The tensor a read gives here (table above). It shows later writes; clone() for a snapshot.
  Tensor value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable is used as a tensor
  Tensor as_tensor() const { return value(); }

  /// Writes as the table above says, converted to dtype(); a 0-D tensor fills the variable.
  /// Returns what a read gives now. Nothing is written on an error.
  /// Errors: InvalidArgument for another shape; for what dtype() cannot hold, such as floating
  ///         numbers in an integer variable; in a replica for kSum if all replicas pass one and
  ///         the same tensor, which cannot be meant as parts of a sum; cross-replica for adding to
  ///         what is summed on read. FailedPrecondition in a replica, or in a scope, of another
  ///         strategy than the variable's.
  Tensor assign(const Tensor& x) const;
  Tensor assign_add(const Tensor& x) const;
  Tensor assign_sub(const Tensor& x) const;
  /// The same number on every replica. Errors: InvalidArgument for kSum with several replicas, and
  /// for an integer beyond 2^53 that no double is equal to, unless the variable rounds anyway.
  Tensor assign(double literal) const;
  Tensor assign_add(double literal) const;
  Tensor assign_sub(double literal) const;
  template <std::integral I>
  Tensor assign(I literal) const {
    if (!internal::variables::is_double(literal)) check_rounds("[variable.assign] ");
    return assign(static_cast<double>(literal));
  }
  template <std::integral I>
  Tensor assign_add(I literal) const {
    if (!internal::variables::is_double(literal)) check_rounds("[variable.assign_add] ");
    return assign_add(static_cast<double>(literal));
  }
  template <std::integral I>
  Tensor assign_sub(I literal) const {
    if (!internal::variables::is_double(literal)) check_rounds("[variable.assign_sub] ");
    return assign_sub(static_cast<double>(literal));
  }
  /// Cross-replica: component i gets x[i].
  void assign(const PerReplica<Tensor>& x) const;
  void assign_add(const PerReplica<Tensor>& x) const;
  void assign_sub(const PerReplica<Tensor>& x) const;

  /// Writes some rows, in the order of the slices: repeated indices accumulate. Contexts as the
  /// table says, with the slices of all replicas joined under kSum and kMean (divided by R).
  /// Errors: InvalidArgument for an index out of range, rows of another shape or dtype;
  ///         Unimplemented for a kOnRead variable, and in a replica for min, max and update with
  ///         kSum or kMean.
  void scatter_add(const IndexedSlices& x) const;
  void scatter_sub(const IndexedSlices& x) const;
  void scatter_mul(const IndexedSlices& x) const;
  void scatter_div(const IndexedSlices& x) const;
  void scatter_min(const IndexedSlices& x) const;
  void scatter_max(const IndexedSlices& x) const;
  void scatter_update(const IndexedSlices& x) const;
  /// Rows of value(), as copies. Shapes: indices [...], result [..., shape()[1:]...].
  /// Errors: InvalidArgument for an index out of range.
  Tensor sparse_read(const Tensor& indices) const;

  const std::string& name() const;
  const Shape& shape() const;
  DType dtype() const;
  /// Where the variable is; in a replica the own component's.
  Device device() const;
  bool trainable() const;
  Synchronization synchronization() const;
  Aggregation aggregation() const;

  /// One variable per local component: "w", "w/replica_1", ...; of one that is kept in shards
  /// "w/part_0", ...
  std::vector<Variable> components() const;
  /// The values of components(). TF: PerWorkerVariable.read_all.
  std::vector<Tensor> read_all() const;
  /// The storage of the calling replica's component; inside StrategyExtended::update that of the
  /// component which is updated; elsewhere that of the only one. Errors: InvalidArgument elsewhere
  /// if there are several, and for a variable that parameter servers keep.
  Tensor& local_tensor() const;
  /// LibTorch's `.grad` of the calling replica's component; undefined if there is none.
  Tensor grad() const;
  /// The variable's value, for a Checkpoint, which keeps the variable alive.
  std::shared_ptr<Trackable> trackable() const;

  /// Errors: FailedPrecondition for an empty handle.
  internal::variables::VariableImpl& impl() const { return use(""); }

 private:
  internal::variables::VariableImpl& use(const char* operation = __builtin_FUNCTION()) const {
    return *internal::base::held(impl_, "Variable", operation);
  }
  bool is_same_component(const Variable& other) const;
  /// Errors: InvalidArgument if an integer that no double is equal to would become another.
  void check_rounds(const char* operation) const;

  std::shared_ptr<internal::variables::VariableImpl> impl_;
};

/// "<Variable 'w' shape=[2] dtype=float32, value=[1. 2.]>": every component, but in a replica its
/// own alone.
std::ostream& operator<<(std::ostream& out, const Variable& v);

}  // namespace cohort
