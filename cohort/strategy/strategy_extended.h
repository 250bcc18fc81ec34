// SPDX-License-Identifier: Apache-2.0
//
// What strategies implement and library writers call; programs use the Strategy handle.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input_context.h"
#include "cohort/runtime/device.h"
#include "cohort/strategy/options.h"
#include "cohort/variables/variable_impl.h"

namespace cohort {

class DistributedDataset;
namespace internal {
class ReplicaGroup;
}

/// Base of all strategies: derive and override the hooks to write a new one.
/// Threads: thread-safe unless a hook says otherwise. TF: tf.distribute.StrategyExtended.
class StrategyExtended : public std::enable_shared_from_this<StrategyExtended> {
 public:
  StrategyExtended() = default;
  virtual ~StrategyExtended() = default;
  StrategyExtended(const StrategyExtended&) = delete;
  StrategyExtended& operator=(const StrategyExtended&) = delete;

  int num_replicas() const { return do_num_replicas(); }
  /// "MirroredStrategy", for error texts.
  const char* name() const { return do_name(); }
  /// One per local replica. Errors: FailedPrecondition for the default strategy.
  std::vector<Device> worker_devices() const;
  /// Where variables live. Errors: FailedPrecondition for the default strategy.
  std::vector<Device> parameter_devices() const;
  /// True if the variable was made under this strategy.
  bool variable_created_in_scope(const Variable& v) const;
  CrossDeviceOps& cross_device_ops() { return do_cross_device_ops(); }
  /// Those that the user gave; null where the strategy is free to reduce as fast as it can.
  CrossDeviceOps* custom_cross_device_ops() { return do_custom_cross_device_ops(); }
  const std::shared_ptr<internal::VariableCreator>& variable_creator() {
    return do_variable_creator();
  }
  /// Calls body(r) on every local replica's thread, in replica context, and waits.
  void call_for_each_replica(internal::FunctionRef<void(int local_replica)> body);
  /// Meets all replicas; replica 0 runs body in cross-replica context. In replica context only.
  std::shared_ptr<void> merge(
      const void* tag, const void* argument,
      internal::FunctionRef<std::shared_ptr<void>(std::span<const void* const>)> body);

 protected:
  virtual const char* do_name() const = 0;
  virtual int do_num_replicas() const = 0;
  virtual std::vector<Device> do_devices() const = 0;
  virtual bool do_is_default() const { return false; }
  /// Runs the body once per replica at the same time; replica scope, grad mode and errors as
  /// ReplicaGroup::run promises.
  virtual void do_run(internal::FunctionRef<void(int local_replica)> body) = 0;
  virtual CrossDeviceOps& do_cross_device_ops() = 0;
  virtual CrossDeviceOps* do_custom_cross_device_ops() { return nullptr; }
  virtual const std::shared_ptr<internal::VariableCreator>& do_variable_creator() = 0;

 private:
  friend class Strategy;
};

}  // namespace cohort
