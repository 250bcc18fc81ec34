// SPDX-License-Identifier: Apache-2.0
//
// What strategies implement and library writers call; programs use the Strategy handle.
//
//   auto& extended = strategy.extended();
//   extended.update(v, [](const Variable& part, const Tensor& x) { part.assign_add(x); }, values);
//   auto sums = extended.batch_reduce_to(ReduceOp::kSum, items);
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/function_ref.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/data/core/input_context.h"
#include "cohort/runtime/device.h"
#include "cohort/runtime/meeting.h"
#include "cohort/runtime/replica_layout.h"
#include "cohort/runtime/thread_context.h"
#include "cohort/strategy/internal/update.h"
#include "cohort/strategy/options.h"
#include "cohort/variables/parameter_store.h"

namespace cohort {

class ClusterResolver;

namespace internal::strategy {
struct Reach;
/// The calling thread's strategy with its ownership; null for the default one.
std::shared_ptr<StrategyExtended> current_strategy();
}  // namespace internal::strategy

/// The devices where a variable's components live.
Destinations destinations_of(const Variable& v);

class Gradients;

/// A step that an optimizer is about to make on a replica; for StrategyExtended's
/// do_apply_gradients. One of the two is called, once. Threads: the replica's.
class OptimizerStep {
 public:
  OptimizerStep() = default;
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  /// Updates that the optimizer has made before this one.
  virtual int64_t iterations() const = 0;
  /// Adds the gradients of all replicas, and gives all copies the same update.
  /// Order: a merge point; nothing is written before all replicas have come.
  virtual void apply_together(const Gradients& gradients) = 0;
  /// Updates this replica's own copies, and what the optimizer keeps for them, by these gradients.
  /// Errors: Unimplemented where all replicas share one copy.
  virtual void apply_alone(const Gradients& gradients) = 0;

 protected:
  ~OptimizerStep() = default;
};

/// Base of all strategies: derive and override the hooks to write a new one.
/// Threads: thread-safe unless a hook says otherwise. TF: tf.distribute.StrategyExtended.
class StrategyExtended : public std::enable_shared_from_this<StrategyExtended> {
 public:
  // What the hooks below are written with.

  /// A body called with a replica's number; lives as long as the call it is passed to.
  using ReplicaBody = internal::base::FunctionRef<void(int local_replica)>;
  /// What makes a scope's variables and their updaters; `local_strategy_extended.h` has those of
  /// one process.
  using ParameterStore = internal::variables::ParameterStore;

  StrategyExtended() : StrategyExtended(/*is_numbered=*/true) {}
  virtual ~StrategyExtended() = default;
  StrategyExtended(const StrategyExtended&) = delete;
  StrategyExtended& operator=(const StrategyExtended&) = delete;

  /// Which replicas of the job are this process's.
  ReplicaLayout layout() const { return do_layout(); }
  /// Replicas of all workers: what losses and batches are divided by.
  int num_replicas_in_sync() const { return layout().total(); }
  /// Replicas of this process: as many as run has results and variables have components.
  int num_local_replicas() const { return layout().local(); }
  /// "MirroredStrategy", for error texts.
  const char* name() const { return do_name(); }
  /// "MirroredStrategy#2 over CPU:0, CPU:1", which tells two of a kind apart; the default one has
  /// no number.
  std::string description() const;
  /// Internal: worker_devices(), to go along with values.
  const internal::values::DeviceList& device_list() const;
  /// One per local replica. Errors: FailedPrecondition for the default strategy.
  std::vector<Device> worker_devices() const;
  /// Where variables live. Errors: FailedPrecondition for the default strategy.
  std::vector<Device> parameter_devices() const;

  // Reductions to destinations that the caller names. Cross-replica; every worker calls them.
  // Tensors come in memory of their own, gradients as CrossDeviceOps says; the default strategy
  // copies its only value.
  // Errors, of all: FailedPrecondition in a replica; InvalidArgument for another number of values
  // than replicas, and as CrossDeviceOps.

  Mirrored<Tensor> reduce_to(ReduceOpArg op, const PerReplica<Tensor>& value,
                             const Destinations& to, const CommunicationOptions& options = {});
  /// Not distributed, the same on every replica: copies of it. Errors: InvalidArgument for kSum and
  /// kProduct with several replicas.
  Mirrored<Tensor> reduce_to(ReduceOpArg op, const Mirrored<Tensor>& value, const Destinations& to);
  Mirrored<Tensor> reduce_to(ReduceOpArg op, const Tensor& value, const Destinations& to);
  /// The results in the order of the items, in memory of their own.
  std::vector<Mirrored<Gradient>> batch_reduce_to(ReduceOpArg op, std::span<const ReduceItem> items,
                                                  const CommunicationOptions& options = {});
  /// A copy on every device. Errors: Unimplemented for the default strategy.
  Mirrored<Tensor> broadcast_to(const Tensor& value, const Destinations& to);
  /// To all replicas' devices.
  Mirrored<Tensor> broadcast_to(const Tensor& value);
  /// A number, as float32.
  Mirrored<Tensor> broadcast_to(double value, const Destinations& to) {
    return broadcast_to(scalar(value), to);
  }
  Mirrored<Tensor> broadcast_to(double value) { return broadcast_to(scalar(value)); }

  // Updates.

  /// fn(component, args[i]...) for each component i of v, in order, on the calling thread and in
  /// cross-replica context. Of PerReplica<T> and Mirrored<T> arguments fn gets value i as a const
  /// T&, others it gets as they are; a variable that all replicas share (CentralStorageStrategy) is
  /// updated once, with value 0. In a replica it is a merge point, and value i is what replica i
  /// has passed.
  /// Returns Mirrored of what fn returns, or void.
  /// Errors: InvalidArgument unless v is a whole variable of this strategy.
  template <class Fn, class... A>
  internal::strategy::UpdateResult<const Variable&, Fn, A...> update(const Variable& v,
                                                                     const Fn& fn,
                                                                     const A&... args);
  /// fn(args[i]...) for each of the devices, where i is the device's index in parameter_devices():
  /// that of its replica, or 0 where one device has all parameters.
  /// Errors: FailedPrecondition in a replica; InvalidArgument for devices of others.
  template <class Fn, class... A>
  internal::strategy::UpdateResult<void, Fn, A...> update_non_slot(const Destinations& where,
                                                                   const Fn& fn, const A&... args);
  /// The devices on which to update what belongs to all of `variables` in common: those of the one
  /// whose name comes first.
  std::vector<Device> non_slot_devices(std::span<const Variable> variables) const;

  // Variables.

  /// Gives the variables that are made while it lives the devices of the one it was made for.
  class [[nodiscard]] Colocation {
   public:
    Colocation(const Colocation&) = delete;
    Colocation& operator=(const Colocation&) = delete;

   private:
    friend class StrategyExtended;
    explicit Colocation(std::shared_ptr<internal::variables::VariableCreator> creator)
        : scope_(std::move(creator)) {}
    internal::variables::VariableCreatorScope scope_;
  };
  /// Errors: InvalidArgument unless v was made under this strategy; FailedPrecondition outside of
  /// its scope, but for the default strategy.
  Colocation colocate_vars_with(const Variable& v);
  /// While it lives, a variable that this thread has read reads as it did then, whatever is written
  /// meanwhile.
  class [[nodiscard]] ReadCache {
   public:
    ReadCache(const ReadCache&) = delete;
    ReadCache& operator=(const ReadCache&) = delete;

   private:
    friend class StrategyExtended;
    explicit ReadCache(std::shared_ptr<void> cache) : cache_(std::move(cache)) {}
    const std::shared_ptr<void> cache_;
  };
  /// Errors: InvalidArgument where this process keeps the variables, and inside another cache.
  ReadCache cache_variable_reads() { return ReadCache(do_cache_reads()); }
  /// The variable that a component belongs to; a whole variable itself.
  Variable value_container(const Variable& component) const;
  /// True if the variable was made under this strategy.
  bool variable_created_in_scope(const Variable& v) const;
  /// What a read gives cross-replica: the reduction of a kOnRead variable, else the first copy.
  /// Errors: FailedPrecondition in a replica; use v.value() there.
  Tensor read_var(const Variable& v) const;

  // Input.

  /// The pipelines that feed the strategy, one for each worker, and which of them is here.
  data::InputContext input_context() const { return do_input_context(); }
  /// True on every worker if `here` is true on one. Collective: each worker calls it as often.
  bool any_worker(bool here) { return do_any_worker(here); }
  /// The sum of what all workers say. Collective, as any_worker.
  int64_t sum_of_workers(int64_t here) {
    return layout().workers() == 1 ? here : do_sum_of_workers(here);
  }

  /// True where checkpoints and summaries are written: on the chief. Always, in one process.
  bool should_checkpoint() const { return layout().worker() == 0; }
  bool should_save_summary() const { return layout().worker() == 0; }
  /// What the cluster was read from; null outside of clusters.
  std::shared_ptr<ClusterResolver> cluster_resolver() const { return do_cluster_resolver(); }

  /// Internal: what its reductions go through. `operation`: whose error it is.
  /// Errors: Unimplemented with several workers that nothing reaches.
  internal::strategy::Reach reach(const char* operation);

  CrossDeviceOps& cross_device_ops() { return do_cross_device_ops(); }
  /// Those that the user gave; null where the strategy is free to reduce as fast as it can.
  CrossDeviceOps* custom_cross_device_ops() { return do_custom_cross_device_ops(); }
  const std::shared_ptr<ParameterStore>& parameter_store() { return do_parameter_store(); }
  /// Calls body(r) on every local replica's thread, in replica context, and waits.
  void call_for_each_replica(ReplicaBody body);
  /// Meets all local replicas; replica 0 runs fn(Brought<A>) in cross-replica context, with every
  /// replica's `argument`, and all get a std::shared_ptr<const R> of what it returns, or void. The
  /// name, a literal, and the types tell merges apart. In replica context only.
  template <class A, class Fn>
  auto merge(const char* name, const A& argument, const Fn& fn) {
    return internal::runtime::typed_merge(
        name, argument, fn,
        [this](const internal::runtime::MeetingKind& kind, const void* own,
               internal::runtime::MergeBody body) { return merge_untyped(kind, own, body); });
  }
  /// Internal: Keras's optimizers make every step of a replica through this.
  void apply_gradients(const Gradients& gradients, OptimizerStep& step) {
    do_apply_gradients(gradients, step);
  }
  /// Internal: makes this strategy the context's: its variables and random numbers.
  void make_current(internal::runtime::ThreadContext& context);
  /// Errors: FailedPrecondition if another strategy is current on this thread.
  void check_not_mixed(const char* operation) const;

 protected:
  /// false: for the default strategy, of which there is only one.
  explicit StrategyExtended(bool is_numbered);

  virtual const char* do_name() const = 0;
  virtual ReplicaLayout do_layout() const = 0;
  virtual std::vector<Device> do_devices() const = 0;
  /// Default: where the replicas are.
  virtual std::vector<Device> do_parameter_devices() const { return do_devices(); }
  virtual bool do_is_default() const { return false; }
  /// Default: one pipeline for each worker.
  virtual data::InputContext do_input_context() const;
  /// Default: of one worker its own answer. Errors: Unimplemented with more.
  virtual bool do_any_worker(bool here);
  /// With more than one worker. Errors: Unimplemented by default.
  virtual int64_t do_sum_of_workers(int64_t here);
  /// Internal: what reaches the other workers, where there are several. Default: nothing.
  virtual internal::collectives::Communicator* do_others() { return nullptr; }
  /// Runs the body once per replica at the same time; replica scope, grad mode and errors as
  /// ReplicaGroup::run promises.
  virtual void do_run(ReplicaBody body) = 0;
  virtual CrossDeviceOps& do_cross_device_ops() = 0;
  virtual CrossDeviceOps* do_custom_cross_device_ops() { return nullptr; }
  virtual const std::shared_ptr<ParameterStore>& do_parameter_store() = 0;
  /// What makes variables where `v`, one of the strategy's, is. Default: the strategy's store, all
  /// of whose variables are in the same places.
  virtual std::shared_ptr<internal::variables::VariableCreator> do_colocation(const Variable& v);
  /// What ends with the cache of reads. Default: InvalidArgument.
  virtual std::shared_ptr<void> do_cache_reads();
  /// How the gradients of an optimizer's step update the variables. Called on each replica's thread
  /// with that replica's gradients: of its share of the loss, if the loss was divided by the global
  /// batch. (With gradient accumulation: of the steps that update.) Default: all replicas together.
  virtual void do_apply_gradients(const Gradients& gradients, OptimizerStep& step);
  virtual std::shared_ptr<ClusterResolver> do_cluster_resolver() const { return nullptr; }
  /// Where random operations inside draw from. Default, null: the process's stream.
  virtual internal::runtime::RandomSeeds* do_seeds() { return nullptr; }

 private:
  std::shared_ptr<void> merge_untyped(const internal::runtime::MeetingKind& kind,
                                      const void* argument, internal::runtime::MergeBody body);
  /// Checks; v's components.
  std::vector<Variable> update_parts(const Variable& v) const;
  /// Checks; for each device the replica that it belongs to.
  std::vector<int> update_places(const Destinations& where) const;
  /// Calls body(i) for each component in cross-replica context.
  void update_each(int count, internal::base::FunctionRef<void(int)> body);
  template <class R, class F>
  internal::strategy::UpdateResultOf<R> collect_updates(std::size_t count, const F& call);
  template <class Fn, class... A>
  internal::strategy::UpdateResult<const Variable&, Fn, A...> update_here(const Variable& v,
                                                                          const Fn& fn,
                                                                          const A&... args);

  const int number_;  // in the order of their making
  mutable std::once_flag devices_once_;
  mutable internal::values::DeviceList devices_;
};

template <class R, class F>
internal::strategy::UpdateResultOf<R> StrategyExtended::collect_updates(std::size_t count,
                                                                        const F& call) {
  if constexpr (std::is_void_v<R>) {
    update_each(static_cast<int>(count), call);
  } else {
    std::vector<R> results;
    update_each(static_cast<int>(count), [&](int i) { results.push_back(call(i)); });
    return Mirrored<R>(std::move(results));
  }
}

template <class Fn, class... A>
internal::strategy::UpdateResult<const Variable&, Fn, A...> StrategyExtended::update_here(
    const Variable& v, const Fn& fn, const A&... args) {
  const std::vector<Variable> parts = update_parts(v);
  return collect_updates<internal::strategy::UpdateReturn<const Variable&, Fn, A...>>(
      parts.size(), [&](int i) {
        [[maybe_unused]] const internal::values::PartOf part{"strategy.update", i,
                                                             num_local_replicas()};
        return fn(parts[static_cast<std::size_t>(i)],
                  internal::values::map_distributed(part, args)...);
      });
}

template <class Fn, class... A>
internal::strategy::UpdateResult<const Variable&, Fn, A...> StrategyExtended::update(
    const Variable& v, const Fn& fn, const A&... args) {
  internal::base::checked_function("[strategy.update]", fn);
  if (current_replica() < 0) return update_here(v, fn, args...);
  using Result = internal::strategy::UpdateResult<const Variable&, Fn, A...>;
  using Arrived = internal::strategy::UpdateArguments<Fn, internal::strategy::PartType<A>...>;
  const Arrived mine(v, internal::values::unwrap(args, current_replica(), "strategy.update")...);
  const auto update_all = [&](internal::runtime::Brought<Arrived> all) -> Result {
    return Arrived::regroup(
        all, [&](const auto&... regrouped) { return update_here(v, fn, regrouped...); });
  };
  if constexpr (std::is_void_v<Result>) {
    merge("update", mine, update_all);
  } else {
    return *merge("update", mine, update_all);
  }
}

template <class Fn, class... A>
internal::strategy::UpdateResult<void, Fn, A...> StrategyExtended::update_non_slot(
    const Destinations& where, const Fn& fn, const A&... args) {
  internal::base::checked_function("[strategy.update_non_slot]", fn);
  const std::vector<int> places = update_places(where);
  return collect_updates<internal::strategy::UpdateReturn<void, Fn, A...>>(
      places.size(), [&](int i) {
        [[maybe_unused]] const internal::values::PartOf part{
            "strategy.update_non_slot", places[static_cast<std::size_t>(i)], num_local_replicas()};
        return fn(internal::values::map_distributed(part, args)...);
      });
}

}  // namespace cohort
