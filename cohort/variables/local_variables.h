// SPDX-License-Identifier: Apache-2.0
//
// The variables of a strategy whose replicas all live in this process.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/variables/arena_chain.h"
#include "cohort/variables/parameter_store.h"

namespace cohort {
class CrossDeviceOps;
}

namespace cohort::internal::collectives {
class Communicator;
}  // namespace cohort::internal::collectives
namespace cohort::internal::runtime {
class ReplicaGroup;
}  // namespace cohort::internal::runtime
namespace cohort::internal::variables {

class FusedUpdate;

/// How replicas share the work of an update; both give the same bits.
enum class UpdateSchedule {
  kSharded,  ///< Each replica updates a slice and copies it to the others: cores share a cache.
  kPull,     ///< Each replica updates its whole copy: reading remote lines once is cheaper.
  /// On GPUs: kPull for small sets of variables, where launches and a second meeting cost more than
  /// bytes, else kSharded. R replicas of one card with Adam move R(R + 6) times the parameters
  /// by pulling, 3R + 4 times in slices with their copies; and slots then exist once.
  kBySize,
};

struct LocalVariablesOptions {
  std::vector<Device> devices = {runtime::host_device()};  ///< One per replica.
  UpdateSchedule schedule = UpdateSchedule::kSharded;
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};  ///< A user's own: no fused update.
  /// kCentral: kOnWrite variables have one copy and so one of components(), but a leaf and a
  /// gradient slot per replica over it; implies kSharded.
  ParameterPlacement placement = ParameterPlacement::kMirrored;
  /// Whose replicas use the variables: using them in another group's is an error. Null: those of
  /// any group of as many replicas. With one replica the variables are plain: all may read them.
  const runtime::ReplicaGroup* group = nullptr;
  /// Which of the workers this process is; each has as many replicas. The communicator's, if there
  /// is one.
  int worker = 0;
  int workers = 1;
  /// kCentral: where the one copy is. Unset: the first replica's device.
  std::optional<Device> parameter_device = {};
  /// Between the workers of the job; says which of them this is. Null: there is one, or they cannot
  /// reach each other, and what they have to do together is Unimplemented.
  std::shared_ptr<collectives::Communicator> communicator = {};
  /// Of gradients that travel at once between workers. 0: as the updater's options say.
  std::size_t bytes_per_bucket = 0;
  /// As UpdaterOptions::bfloat16_gradients, with several workers.
  bool bfloat16_gradients = false;
  /// What a variable is made with, given what was asked for, complete. Null: with that.
  std::function<VariableOptions(const VariableOptions&)> variable_options = {};
  std::string owner = "no strategy";  ///< For error texts.
};

/// Threads: thread-safe; inside a run, creating is a merge point. With several workers all of them
/// create the same variables in the same order, and each begins with worker 0's value: see
/// create().
class LocalVariables : public ParameterStore, public std::enable_shared_from_this<LocalVariables> {
 public:
  explicit LocalVariables(LocalVariablesOptions options = {});

  /// Errors: InvalidArgument for options that do not go together; FailedPrecondition if replicas or
  ///         workers create different ones; it names both.
  std::shared_ptr<VariableImpl> create(const InitialValue& initial,
                                       const VariableOptions& options) override;
  /// The fused update. Errors: as FusedUpdate.
  std::shared_ptr<Updater> make_updater(std::vector<Variable> variables,
                                        UpdaterOptions options) override;
  /// Errors: Unimplemented for several workers.
  void begin_renewing_rows(const Variable& variable, const char* why) override;
  bool renews_rows(const Variable& variable) const override;
  void renew_rows(const Variable& variable, const IndexedSlices& rows) override;
  int64_t updates_of(const Variable& variable, int replica) const override;
  std::string owner() const override { return options_.owner; }
  const LocalVariables* local() const override { return this; }
  const LocalVariablesOptions& options() const { return options_; }
  ReplicaLayout layout() const override { return layout_; }
  bool reaches_workers() const override {
    return layout_.workers() == 1 || options_.communicator != nullptr;
  }
  std::shared_ptr<checkpoint::SavingGroup> saving_group() const override { return saving_group_; }
  /// Null where there is nobody to talk to.
  collectives::Communicator* others() const {
    return layout_.workers() > 1 ? options_.communicator.get() : nullptr;
  }
  int replicas() const { return layout_.local(); }

  /// Compares the copies of every living kOnWrite variable, bit by bit. Replicas must be at rest.
  /// Errors: FailedPrecondition that names the variable, the replica, and the first element that
  ///         differs with both values.
  /// Cost: a pass over all copies; steps pay nothing for it.
  void check_copies() const;

  /// One replica on the host; what is made outside of every scope. Lives as long as the process.
  static const std::shared_ptr<LocalVariables>& default_instance();

 private:
  std::shared_ptr<VariableImpl> create_now(const InitialValue& initial,
                                           const VariableOptions& asked);
  VariableOptions complete(const Tensor& value, const VariableOptions& asked) const;
  Tensor first_value(const Tensor& made, const VariableOptions& options) const;
  std::shared_ptr<ArenaRange> place(DType dtype, int64_t numel);
  const Device& central_device() const {
    return options_.parameter_device ? *options_.parameter_device : options_.devices.front();
  }
  void remember(const std::shared_ptr<VariableImpl>& variable);
  std::vector<std::shared_ptr<FusedUpdate>> updaters() const;

  LocalVariablesOptions options_;  // constant after construction
  const ReplicaLayout layout_;
  const std::shared_ptr<checkpoint::SavingGroup> saving_group_;
  mutable base::Mutex mutex_;
  std::map<DType, ArenaChain> arenas_ COHORT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<VariableImpl>> mirrored_
      COHORT_GUARDED_BY(mutex_);                         // in order of creation
  std::size_t sweep_at_ COHORT_GUARDED_BY(mutex_) = 64;  // drops dead ones then
  std::vector<std::weak_ptr<FusedUpdate>> updaters_ COHORT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<VariableImpl>> renewed_ COHORT_GUARDED_BY(mutex_);
  std::atomic<bool> renews_any_{false};
};

}  // namespace cohort::internal::variables
