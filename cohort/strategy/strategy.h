// SPDX-License-Identifier: Apache-2.0
//
// Strategy: how a program's replicas are laid out. One line decides, the rest stays the same:
//
//   MirroredStrategy strategy;
//   auto scope = strategy.scope();                             // variables become distributed
//   auto dist = strategy.distribute_dataset(batches);
//   for (auto& batch : dist) {
//     PerReplica<Tensor> loss = strategy.run(step, batch);     // on every replica at once
//     Tensor total = strategy.reduce(ReduceOp::kSum, loss);
//   }
#pragma once

#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/handle.h"
#include "cohort/collectives/options.h"
#include "cohort/strategy/axes.h"
#include "cohort/strategy/distributed_dataset.h"
#include "cohort/strategy/internal/call.h"
#include "cohort/strategy/internal/reduce.h"
#include "cohort/strategy/options.h"
#include "cohort/strategy/scope.h"
#include "cohort/strategy/strategy_extended.h"
#include "cohort/values/per_replica.h"
#include "cohort/variables/variable.h"

namespace cohort {

class ReplicaContext;

namespace internal::strategy {
struct ReduceEach;
}

/// Which replica of how many, over all workers, a value is made for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
  /// "ValueContext(replica id 0, total replicas in sync: 2)"
  std::string to_string() const;
};

/// Handle; two handles are the same strategy only if one is a copy of the other.
/// Threads: thread-safe; runs of one strategy wait for each other. TF: tf.distribute.Strategy.
class Strategy {
 public:
  explicit Strategy(std::shared_ptr<StrategyExtended> extended) : extended_(std::move(extended)) {}
  bool operator==(const Strategy& other) const { return extended_ == other.extended_; }

  /// Errors: FailedPrecondition in replica context, or if another strategy is current.
  Scope scope() const { return Scope(internal::base::held(extended_, "Strategy")); }
  /// How many replicas all workers have together.
  int num_replicas_in_sync() const { return use().num_replicas_in_sync(); }
  StrategyExtended& extended() const { return use(); }
  /// What the cluster was read from; null outside of clusters.
  std::shared_ptr<ClusterResolver> cluster_resolver() const { return use().cluster_resolver(); }

  /// Waits for all workers; in one process there is nobody to wait for.
  /// Errors: FailedPrecondition in a replica; DeadlineExceeded that names the workers that have not
  ///         come.
  void barrier() const;

  /// Calls fn on every local replica at once and waits. Returns PerReplica of what fn returns; of a
  /// void fn nothing. PerReplica<T> and Mirrored<T> arguments arrive as the replica's own const T&,
  /// also inside tuples, containers and aggregate templates (values/regroup.h); everything else
  /// arrives as it is. One tuple or dataset element spreads over several parameters of fn.
  /// On GPUs, tensors of the host among the arguments, also inside tuples, containers, dataset
  /// elements and aggregate templates, arrive on the replica's device, copied as TensorFlow does;
  /// what fn captures, and structs of the program's own, stay where they are. Results stay on the
  /// replica's device.
  /// Errors: the lowest failing replica's exception, as thrown; the others are unwound at their
  ///         next merge point. FailedPrecondition inside a replica, while another strategy is
  ///         current, or if replicas make different numbers of merge calls. InvalidArgument for a
  ///         PerReplica with another number of values than replicas, and for an empty function.
  ///         With several workers all throw what fails on one of them; a worker whose own run is
  ///         over by then, or has no meeting left, throws it when it next does something with the
  ///         others. Later runs work.
  template <class Fn, class... A>
  requires(!std::same_as<Fn, RunOptions>) auto run(const Fn& fn, const A&... args) const;
  template <class Fn, class... A>
  auto run(const RunOptions&, const Fn& fn, const A&... args) const {
    return run(fn, args...);
  }

  /// One value made of those of all replicas, leaf by leaf over nests, in memory of its own, on the
  /// host: of values on GPUs it waits for what they compute, so a loop that runs ahead of its GPUs
  /// reduces once in a while. With
  /// axes each replica first reduces its value over them; kMean then divides by the true number of
  /// elements, also where batches are uneven. With several workers all of them call it, and all get
  /// the same. Errors: FailedPrecondition in replica context; InvalidArgument for shapes that
  /// differ.
  template <class T>
  T reduce(ReduceOpArg op, const PerReplica<T>& value, const Axes& axes = {}) const {
    StrategyExtended& extended = use();
    internal::strategy::check_cross_replica("[strategy.reduce] ");
    const internal::strategy::Reach reach = extended.reach("[strategy.reduce] ");
    return internal::strategy::together(reach.others, "strategy.reduce", [&] {
      internal::strategy::check_value_count("[strategy.reduce] ", value.size(),
                                            extended.num_local_replicas());
      return internal::strategy::reduce_nest(op, value, axes, reach);
    });
  }
  /// A value that is the same on every replica: the value itself, reduced over the axes.
  /// Errors: InvalidArgument for kSum and kProduct over several replicas, unless it is the number
  /// 0: they could mean the value, or what R such values make.
  template <class T>
  T reduce(ReduceOpArg op, const Mirrored<T>& value, const Axes& axes = {}) const {
    return reduce_equal(op, value.local(), axes);
  }
  /// A plain value counts as the same on every replica of this worker; with several workers it is
  /// each worker's own, and is reduced over the workers.
  Tensor reduce(ReduceOpArg op, const Tensor& value, const Axes& axes = {}) const {
    return reduce_plain(op, value, axes);
  }
  template <class N>
  requires std::is_arithmetic_v<N> N reduce(ReduceOpArg op, N value)
  const { return reduce_plain(op, value, {}); }
  /// The components of a kOnRead variable, reduced; of a kOnWrite one a copy of its value, which is
  /// the same on every replica.
  Tensor reduce(ReduceOpArg op, const Variable& value, const Axes& axes = {}) const;
  /// Each PerReplica, Mirrored and plain part of a nest.
  template <class T>
  requires(internal::values::holds_distributed<T>() &&
           !internal::values::is_distributed_v<T>) auto reduce(ReduceOpArg op, const T& nest,
                                                               const Axes& axes = {}) const;

  /// Joins the replicas' tensors along `axis`, leaf by leaf, in memory of their own, on the host;
  /// sizes along it may differ. With several workers all of them call it, and get the parts of all
  /// replicas.
  /// Errors: FailedPrecondition in replica context; InvalidArgument for scalars and shapes that
  ///         differ in another axis; Unimplemented for indexed slices.
  template <class T>
  T gather(const PerReplica<T>& value, int64_t axis) const {
    StrategyExtended& extended = use();
    internal::strategy::check_cross_replica("[strategy.gather] ");
    const internal::strategy::Reach reach = extended.reach("[strategy.gather] ");
    return internal::strategy::together(reach.others, "strategy.gather", [&] {
      internal::strategy::check_value_count("[strategy.gather] ", value.size(),
                                            extended.num_local_replicas());
      return internal::strategy::gather_nest(value, axis, reach);
    });
  }
  /// A plain tensor: itself; with several workers those of all workers, joined.
  Tensor gather(const Tensor& value, int64_t axis) const;
  /// The variable's components, joined.
  Tensor gather(const Variable& value, int64_t axis) const;
  /// Each PerReplica of a nest; what is plain stays.
  template <class T>
  requires(internal::values::holds_distributed<T>() &&
           !internal::values::is_distributed_v<T>) auto gather(const T& nest, int64_t axis) const;

  /// The values of this worker's replicas, as a vector. A nest that holds such values gives a nest
  /// for each replica; a plain value gives itself, once. TF: experimental_local_results.
  template <class T>
  std::vector<T> local_results(const PerReplica<T>& value) const {
    return std::vector<T>(value.begin(), value.end());
  }
  template <class T>
  std::vector<T> local_results(const Mirrored<T>& value) const {
    return std::vector<T>(value.begin(), value.end());
  }
  std::vector<Variable> local_results(const Variable& v) const { return v.components(); }
  template <class T>
  std::vector<internal::strategy::PartType<T>> local_results(const T& nest_or_plain) const;

  /// Splits each batch of `global_batches` over the replicas; `distributed_dataset.h` says how.
  /// Order: with several workers a collective: all of them call it, for the same data, in the same
  ///        order.
  /// Errors: InvalidArgument for options that do not fit, and with several replicas unless the
  ///         dataset is batched (of elements whose shapes are not known, as after a map, the
  ///         iterator's next throws it); Unimplemented for kPerReplica; as auto_shard_dataset.
  /// TF: experimental_distribute_dataset.
  DistributedDataset distribute_dataset(const Dataset& global_batches,
                                        const InputOptions& options = {}) const;
  /// The datasets that fn(InputContext) makes, of batches for one replica each: of a worker's
  /// dataset they go to its replicas round-robin, or each one has its own (kPerReplica). Nothing
  /// is split or sharded: fn does that with what the context says. When data ends, replicas that
  /// have no batch for the last step get one of 0 rows. Only where there is one worker, and all
  /// shapes are known (drop_remainder) or data never ends, is such a last step left out.
  /// Errors: InvalidArgument for options that do not fit, or datasets of unlike elements.
  /// TF: distribute_datasets_from_function.
  DistributedDataset distribute_datasets_from_function(
      const std::function<Dataset(const InputContext&)>& fn,
      const InputOptions& options = {}) const;

  /// fn(ValueContext) once per local replica, in order, on the calling thread.
  /// Errors: FailedPrecondition in replica context.
  template <class Fn>
  auto distribute_values_from_function(const Fn& fn) const {
    constexpr bool kIsCallable = std::is_invocable_v<const Fn&, const ValueContext&>;
    static_assert(kIsCallable,
                  "[strategy.distribute_values_from_function] expected a function of one (const "
                  "ValueContext&)");
    if constexpr (kIsCallable) {
      using T = std::invoke_result_t<const Fn&, const ValueContext&>;
      StrategyExtended& extended = use();
      internal::strategy::check_cross_replica("[strategy.distribute_values_from_function] ");
      internal::base::checked_function("[strategy.distribute_values_from_function]", fn);
      const ReplicaLayout layout = extended.layout();
      internal::values::DeviceList devices =
          extended.device_list();  // fn may let go of the strategy
      std::vector<T> values;
      for (int r = 0; r < layout.local(); ++r) {
        values.push_back(fn(ValueContext{layout.global_id(r), layout.total()}));
      }
      return PerReplica<T>::placed(std::move(values), std::move(devices));
    }
  }

 protected:
  Strategy() = default;
  std::shared_ptr<StrategyExtended> extended_;

 private:
  friend struct internal::strategy::ReduceEach;
  template <class T>
  T reduce_equal(ReduceOp op, const T& value, const Axes& axes) const {
    internal::strategy::check_cross_replica("[strategy.reduce] ");
    return internal::strategy::reduce_same_nest(op, value, axes,
                                                use("reduce").num_replicas_in_sync());
  }
  template <class T>
  T reduce_plain(ReduceOp op, const T& value, const Axes& axes) const {
    const internal::strategy::Reach reach = use("reduce").reach("[strategy.reduce] ");
    if (reach.others == nullptr) return reduce_equal(op, value, axes);
    internal::strategy::check_cross_replica("[strategy.reduce] ");
    return internal::strategy::together(reach.others, "strategy.reduce", [&] {
      return internal::strategy::reduce_worker_nest(op, value, axes, reach);
    });
  }
  StrategyExtended& use(const char* operation = __builtin_FUNCTION()) const {
    return *internal::base::held(extended_, "Strategy", operation);
  }
};

/// "<MirroredStrategy#1 over CPU:0, CPU:1>".
std::ostream& operator<<(std::ostream& out, const Strategy& strategy);
/// As to_string().
std::ostream& operator<<(std::ostream& out, const ValueContext& context);

/// The current strategy; outside of every scope the default one: one replica, plain variables.
Strategy get_strategy();
/// True inside a scope or run of a strategy that is not the default one.
bool has_strategy();
bool in_cross_replica_context();
/// The calling replica's; outside of every scope and run the default one's (id 0); empty in
/// cross-replica context.
ReplicaContext get_replica_context();
/// For the whole thread, until changed; nullopt: the default strategy.
/// Errors: FailedPrecondition inside a scope.
void set_strategy(const std::optional<Strategy>& strategy);

template <class Fn, class... A>
requires(!std::same_as<Fn, RunOptions>) auto Strategy::run(const Fn& fn, const A&... args) const {
  internal::strategy::check_run_arguments<Fn, A...>();
  if constexpr (internal::strategy::takes_run_arguments_v<Fn, A...>) {
    StrategyExtended& extended = use();
    internal::base::checked_function("[strategy.run]", fn);
    using R = internal::strategy::CallResult<Fn, A...>;
    if constexpr (std::is_void_v<R>) {
      extended.call_for_each_replica([&](int r) {
        if (const Device* to = internal::strategy::device_to_move_to(*extended.device_list(), r)) {
          return internal::strategy::call_on_device(*to, fn, r, args...);
        }
        internal::strategy::call_in_replica(fn, r, args...);
      });
    } else {
      internal::values::DeviceList devices =
          extended.device_list();  // fn may let go of the strategy
      std::vector<std::optional<R>> results(
          static_cast<std::size_t>(extended.num_local_replicas()));
      extended.call_for_each_replica([&](int r) {
        std::optional<R>& result = results[static_cast<std::size_t>(r)];
        if (const Device* to = internal::strategy::device_to_move_to(*devices, r)) {
          result.emplace(internal::strategy::call_on_device(*to, fn, r, args...));
        } else {
          result.emplace(internal::strategy::call_in_replica(fn, r, args...));
        }
      });
      std::vector<R> values;
      values.reserve(results.size());
      for (std::optional<R>& result : results) values.push_back(std::move(*result));
      return PerReplica<R>::placed(std::move(values), std::move(devices));
    }
  }
}

namespace internal::strategy {

struct ReduceEach {
  const Strategy& strategy;
  ReduceOp op;
  const Axes& axes;
  template <class T>
  auto distributed(const T& value) const {
    return strategy.reduce(op, value, axes);
  }
  template <class T>
  T plain(const T& value) const {
    return strategy.reduce_plain(op, value, axes);
  }
};

struct GatherEach {
  const Strategy& strategy;
  int64_t axis;
  template <class T>
  T distributed(const PerReplica<T>& value) const {
    return strategy.gather(value, axis);
  }
  template <class T>
  T distributed(const Mirrored<T>& value) const {
    return value.local();
  }
  template <class T>
  const T& plain(const T& value) const {
    return value;
  }
};

}  // namespace internal::strategy

template <class T>
requires(internal::values::holds_distributed<T>() &&
         !internal::values::is_distributed_v<T>) auto Strategy::reduce(ReduceOpArg op,
                                                                       const T& nest,
                                                                       const Axes& axes) const {
  internal::strategy::check_cross_replica("[strategy.reduce] ");
  return internal::strategy::together(use().reach("[strategy.reduce] ").others, "strategy.reduce",
                                      [&] {
                                        return internal::values::map_distributed(
                                            internal::strategy::ReduceEach{*this, op, axes}, nest);
                                      });
}

template <class T>
requires(internal::values::holds_distributed<T>() &&
         !internal::values::is_distributed_v<T>) auto Strategy::gather(const T& nest,
                                                                       int64_t axis) const {
  internal::strategy::check_cross_replica("[strategy.gather] ");
  return internal::strategy::together(
      use().reach("[strategy.gather] ").others, "strategy.gather", [&] {
        return internal::values::map_distributed(internal::strategy::GatherEach{*this, axis}, nest);
      });
}

template <class T>
std::vector<internal::strategy::PartType<T>> Strategy::local_results(const T& nest_or_plain) const {
  if constexpr (!internal::values::holds_distributed<T>()) {
    return {nest_or_plain};
  } else {
    std::vector<internal::strategy::PartType<T>> out;
    const int replicas = use().num_local_replicas();
    for (int r = 0; r < replicas; ++r) {
      const internal::values::PartOf part{"strategy.local_results", r, replicas};
      out.push_back(internal::values::map_distributed(part, nest_or_plain));
    }
    return out;
  }
}

}  // namespace cohort
