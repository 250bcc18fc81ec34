// SPDX-License-Identifier: Apache-2.0
//
// What the strategies whose replicas share this process have in common.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/runtime/random.h"
#include "cohort/strategy/strategy_extended.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::internal::runtime {
class ReplicaGroup;
}  // namespace cohort::internal::runtime
namespace cohort::internal::variables {
class LocalVariables;
class StepUndo;
}  // namespace cohort::internal::variables

namespace cohort::internal::strategy {

struct LocalStrategyOptions {
  const char* name = "";
  std::vector<Device> devices = {};
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};
  bool is_default = false;
  bool check_copies = false;
  int intra_op_threads = 0;
  std::optional<Device> parameter_device = {};  ///< Variables are there, not with the replicas.
  /// What every variable is made with, given what the program asked for, with shape, dtype and
  /// trainable filled in: how copies agree, say. Null: with that.
  std::function<VariableOptions(const VariableOptions&)> variable_options = {};
  /// Which of the workers this process is; each has as many replicas. The communicator's, if there
  /// is one.
  int worker = 0;
  int workers = 1;
  /// Of the workers those that have the same cores as this one, and share them out. At least 1.
  int workers_here = 1;
  /// Reaches the other workers. Null: what needs them is refused.
  std::shared_ptr<collectives::Communicator> communicator = {};
  /// CommunicationOptions::bytes_per_pack.
  int64_t bytes_per_pack = 0;
  bool bfloat16_gradients = false;  ///< CommunicationOptions::bfloat16_gradients.
  /// Where workers are threads of one process: none may shift what another one draws. A worker that
  /// is a process draws from the process's stream, as one that is alone.
  bool own_random_numbers = true;
  /// What the cluster was read from; null outside of clusters.
  std::shared_ptr<ClusterResolver> cluster_resolver = {};
};

class LocalStrategy : public StrategyExtended {
 public:
  /// Errors: as MirroredStrategy.
  explicit LocalStrategy(LocalStrategyOptions options);
  ~LocalStrategy() override;
  /// One replica and plain variables; what is current outside of every scope.
  static const std::shared_ptr<LocalStrategy>& default_instance();

 protected:
  const char* do_name() const override { return options_.name; }
  ReplicaLayout do_layout() const override { return layout_; }
  std::vector<Device> do_devices() const override { return options_.devices; }
  std::vector<Device> do_parameter_devices() const override;
  bool do_is_default() const override { return options_.is_default; }
  void do_run(base::FunctionRef<void(int)> body) override;
  CrossDeviceOps& do_cross_device_ops() override { return *ops_; }
  CrossDeviceOps* do_custom_cross_device_ops() override { return options_.cross_device_ops.get(); }
  const std::shared_ptr<variables::ParameterStore>& do_parameter_store() override {
    return variables_;
  }
  bool do_any_worker(bool here) override { return do_sum_of_workers(here ? 1 : 0) > 0; }
  int64_t do_sum_of_workers(int64_t here) override;
  collectives::Communicator* do_others() override { return others_; }
  std::shared_ptr<ClusterResolver> do_cluster_resolver() const override {
    return options_.cluster_resolver;
  }
  runtime::RandomSeeds* do_seeds() override { return seeds_ ? &*seeds_ : nullptr; }

 private:
  void run_here(base::FunctionRef<void(int)> body);
  void run_replica(int replica, base::FunctionRef<void(int)> body) const;
  void run_with_others(base::FunctionRef<void(int)> body);

  const LocalStrategyOptions options_;
  const ReplicaLayout layout_;
  collectives::Communicator* const others_;  // null: one worker, or nothing reaches the others
  uint64_t generation_ = 0;                  // of the last run; guarded by the communicator's turn
  // Where there are several workers: none may shift what another draws in the same process.
  std::optional<runtime::RandomSeeds> seeds_;
  const std::unique_ptr<runtime::ReplicaGroup> group_;
  std::vector<variables::StepUndo> undo_;  // of each replica, where there are several
  std::shared_ptr<CrossDeviceOps> ops_;
  std::shared_ptr<variables::ParameterStore> variables_;
  std::shared_ptr<variables::LocalVariables> watched_;  // the same, where runs check the copies
};

}  // namespace cohort::internal::strategy
