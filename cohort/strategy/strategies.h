// SPDX-License-Identifier: Apache-2.0
//
// The strategies of one process.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

struct MirroredOptions {
  /// Empty: all GPUs; without any a logical CPU for each usable core, at most 8
  /// (COHORT_CPU_DEVICES changes the number). Several GPUs may be parts of one
  /// (set_logical_device_configuration). CPUs and GPUs in one list work, through copies: gradients
  /// and values are reduced on the first device. TF: all GPUs, else CPU:0.
  std::vector<Device> devices = {};
  /// A user's own; every gradient then goes through its batch_reduce. Empty: the fused update.
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
  /// After each run that succeeds, looks whether all copies of every variable have the same bits;
  /// run throws FailedPrecondition that names the variable, the replica and the first difference.
  /// For debugging: it reads all variables. COHORT_CHECK_COPIES=1 turns it on for all strategies.
  bool check_copies = false;
  /// LibTorch's threads inside each replica's operations. 0: OMP_NUM_THREADS where it is set, else
  /// what at::set_num_threads said before, else the usable cores (affinity, cgroup quota rounded
  /// up) divided by the replicas. Small operations use one, whatever it is.
  int intra_op_threads = 0;
};

/// A replica per device of this process, variables mirrored, gradients summed in replica order.
/// Errors: InvalidArgument for a device listed twice, or a GPU that is not there, with those that
///         are; Unimplemented for TPUs, and for GPUs where none can be used: it says why.
/// TF: tf.distribute.MirroredStrategy.
class MirroredStrategy : public Strategy {
 public:
  explicit MirroredStrategy(MirroredOptions options = {});
  // Templates, so that braces with options' names are never read as devices: GCC before 13 ignores
  // the names of what is no aggregate, a misspelt one, too.
  template <std::convertible_to<Device> D>
  explicit MirroredStrategy(std::initializer_list<D> devices)
      : MirroredStrategy(MirroredOptions{.devices = {devices.begin(), devices.end()}}) {}
  template <std::same_as<std::vector<Device>> Devices>
  explicit MirroredStrategy(Devices devices)
      : MirroredStrategy(MirroredOptions{.devices = std::move(devices)}) {}
};

struct CentralStorageOptions {
  std::vector<Device> compute_devices = {};  ///< Empty: as MirroredOptions::devices.
  /// Default: the only compute device; of several the first one, if that is a GPU, else CPU:0.
  /// TF: CPU:0 with several compute devices.
  std::optional<Device> parameter_device = {};
  int intra_op_threads = 0;  ///< As MirroredOptions::intra_op_threads.
};

/// A replica per compute device, and one copy of each variable, which all of them read. Everything
/// that works under MirroredStrategy works here, and gives the same numbers; updates happen once,
/// while the replicas meet. Writing a kOnWrite variable without aggregation in a replica is an
/// InvalidArgument, for there is no own copy.
/// Errors: as MirroredStrategy; Unimplemented for compute devices that do not share the memory of
///         the parameter device. TF: tf.distribute.experimental.CentralStorageStrategy.
class CentralStorageStrategy : public Strategy {
 public:
  explicit CentralStorageStrategy(CentralStorageOptions options = {});
};

struct OneDeviceOptions {
  int intra_op_threads = 0;  ///< As MirroredOptions::intra_op_threads.
};

/// Everything on one device; for programs that are to be distributed later.
/// TF: tf.distribute.OneDeviceStrategy.
class OneDeviceStrategy : public Strategy {
 public:
  explicit OneDeviceStrategy(const Device& device, OneDeviceOptions options = {});
};

}  // namespace cohort
