// SPDX-License-Identifier: Apache-2.0
//
// What the strategies whose replicas share this process have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/runtime/replica_group.h"
#include "cohort/strategy/strategy_extended.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/step_undo.h"

namespace cohort::internal {

struct LocalStrategyOptions {
  const char* name = "";
  std::vector<Device> devices = {};
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
  bool is_default = false;
  bool check_copies = false;
  int intra_op_threads = 0;
  std::optional<Device> parameter_device = {};  ///< Variables are there, not with the replicas.
};

class LocalStrategy : public StrategyExtended {
 public:
  /// Errors: as MirroredStrategy.
  explicit LocalStrategy(LocalStrategyOptions options);
  /// One replica and plain variables; what is current outside of every scope.
  static const std::shared_ptr<LocalStrategy>& default_instance();

 protected:
  const char* do_name() const override { return options_.name; }
  int do_num_replicas() const override { return group_.size(); }
  std::vector<Device> do_devices() const override { return options_.devices; }
  std::vector<Device> do_parameter_devices() const override;
  bool do_is_default() const override { return options_.is_default; }
  void do_run(FunctionRef<void(int)> body) override;
  CrossDeviceOps& do_cross_device_ops() override { return *ops_; }
  CrossDeviceOps* do_custom_cross_device_ops() override { return options_.cross_device_ops.get(); }
  const std::shared_ptr<VariableCreator>& do_variable_creator() override { return variables_; }

 private:
  const LocalStrategyOptions options_;
  ReplicaGroup group_;
  std::vector<StepUndo> undo_;  // of each replica, where there are several
  std::shared_ptr<CrossDeviceOps> ops_;
  std::shared_ptr<VariableCreator> variables_;
  std::shared_ptr<LocalVariables> watched_;  // the same, where runs check the copies
};

}  // namespace cohort::internal
