// SPDX-License-Identifier: Apache-2.0
//
// How per-replica values become one. A strategy owns one; users may bring their own:
//
//   struct LoggedReduce : CrossDeviceOps {
//     ReductionToOneDevice inner;
//     Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
//                                  const Destinations& to,
//                                  const CommunicationOptions& o) override {
//       std::printf("reducing %zu values\n", value.size());
//       return inner.reduce(op, value, to, o);
//     }
//   };
//   MirroredStrategy strategy({.cross_device_ops = std::make_shared<LoggedReduce>()});
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/options.h"
#include "cohort/runtime/device.h"
#include "cohort/values/gradient.h"
#include "cohort/values/per_replica.h"

namespace cohort {

/// The devices where a result should live.
class Destinations {
 public:
  Destinations(std::vector<Device> devices) : devices_(std::move(devices)) {}  // NOLINT
  Destinations(std::initializer_list<Device> devices) : devices_(devices) {}   // NOLINT
  Destinations(const Device& device) : devices_({device}) {}                   // NOLINT
  Destinations(const char* device) : Destinations(Device(device)) {}           // NOLINT
  Destinations(const std::string& device) : Destinations(Device(device)) {}    // NOLINT
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::vector<Device> devices_;
};

struct ReduceItem {
  PerReplica<Gradient> value;
  Destinations destinations;
};

/// Base of all. Threads: called by one thread of the process, at a merge point.
/// TF: tf.distribute.CrossDeviceOps.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  // The checked entries.

  /// One result, a copy per destination. Dense values must have equal shapes and dtypes; sparse
  /// ones join their rows in replica order (kMean divides them by the number of values). One value
  /// for one destination comes back as it is; no other result shares memory with a value.
  /// Errors: InvalidArgument for no destination, no values, dense values mixed with sparse ones,
  ///         unequal shapes or dtypes, a mean of integers, a sum of bool; and where do_reduce has
  ///         changed a value, or returned none, another shape or dtype, or too few; Unimplemented
  ///         for kMin, kMax and kProduct of sparse values, and for a kind of destination that this
  ///         build or machine lacks.
  Mirrored<Gradient> reduce(ReduceOpArg op, const PerReplica<Gradient>& value,
                            const Destinations& to, const CommunicationOptions& options = {});
  /// The results in the order of the items. `names`: of their variables, for error texts.
  std::vector<Mirrored<Gradient>> batch_reduce(ReduceOpArg op, std::span<const ReduceItem> items,
                                               const CommunicationOptions& options = {},
                                               std::span<const std::string> names = {});
  /// A copy per destination: none shares memory with the value.
  Mirrored<Tensor> broadcast(const Tensor& value, const Destinations& to);
  /// Joins the values along `axis` in replica order.
  /// Shapes: equal but for `axis`. Errors: InvalidArgument for scalars, other shapes or dtypes.
  Mirrored<Tensor> gather(const PerReplica<Tensor>& value, const Destinations& to, int64_t axis,
                          const CommunicationOptions& options = {});

 protected:
  virtual Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                       const Destinations& to,
                                       const CommunicationOptions& options) = 0;
  /// Default: do_reduce for each item. Not called where each item is one value for one destination.
  virtual std::vector<Mirrored<Gradient>> do_batch_reduce(ReduceOp op,
                                                          std::span<const ReduceItem> items,
                                                          const CommunicationOptions& options);
  /// Default: a copy per destination; the first may be the value, which broadcast() then copies.
  virtual Mirrored<Tensor> do_broadcast(const Tensor& value, const Destinations& to);
  /// Default: concatenates, then broadcasts.
  virtual Mirrored<Tensor> do_gather(const PerReplica<Tensor>& value, const Destinations& to,
                                     int64_t axis, const CommunicationOptions& options);
};

/// Adds up tensors of one shape in their order.
using AccumulationFn = std::function<Tensor(std::span<const Tensor>)>;

/// Brings the values to one device (the first destination, if none is named), reduces there in
/// replica order, and copies the result out. Devices that share a memory, as all CPUs do, bring and
/// copy nothing: one pass reads every value and writes every result.
/// TF: tf.distribute.ReductionToOneDevice.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  explicit ReductionToOneDevice(std::optional<Device> reduce_to_device = {},
                                AccumulationFn accumulate = {});

 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override;

 private:
  Tensor accumulated(ReduceOp op, std::span<const Tensor> values) const;

  const std::optional<Device> device_;
  AccumulationFn accumulate_;
};

/// Reduces within each half of the devices to one device, exchanges the halves' results between
/// these two, and copies them out within the halves; which two changes from one pack to the
/// next. For n values and n destinations in one memory; everything else, and sparse values, go
/// through ReductionToOneDevice.
/// Cost: TensorFlow has it for eight GPUs in two groups of four, whose links inside a group are
/// fast and between them slow. CPUs have one memory: there it makes three passes for
/// ReductionToOneDevice's one and never wins; packs only bound how much of a batch is under way.
/// Order: (first half in replica order) + (second half in replica order).
/// TF: tf.distribute.HierarchicalCopyAllReduce.
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  /// The dense values of a batch, of one dtype, are concatenated (logically: nothing is copied)
  /// and split into so many packs; 0: each value for itself. The numbers are the same for any of
  /// them. Errors: InvalidArgument if negative.
  explicit HierarchicalCopyAllReduce(int num_packs = 1);

 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override;
  std::vector<Mirrored<Gradient>> do_batch_reduce(ReduceOp op, std::span<const ReduceItem> items,
                                                  const CommunicationOptions& options) override;

 private:
  const int num_packs_;
  ReductionToOneDevice others_;
};

/// All-reduce by NVIDIA's NCCL, of values on as many CUDA devices, which is TensorFlow's default
/// there. This version has no NCCL: dense values are refused; sparse ones, gather and broadcast
/// work as with ReductionToOneDevice.
/// Errors: Unimplemented when it is to reduce dense values. TF: tf.distribute.NcclAllReduce.
class NcclAllReduce : public CrossDeviceOps {
 public:
  /// Packs as of HierarchicalCopyAllReduce. Errors: InvalidArgument if negative.
  explicit NcclAllReduce(int num_packs = 1);

 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override;

 private:
  ReductionToOneDevice others_;
};

}  // namespace cohort
