// SPDX-License-Identifier: Apache-2.0
//
// ReplicaContext: what a function can do while it runs as one of several replicas.
//
//   strategy.run([&](const Tensor& x) {
//     auto ctx = get_replica_context();
//     Tensor share = x / ctx.all_reduce(ReduceOp::kSum, x);
//   }, batch);
#pragma once

#include <iosfwd>
#include <string>

#include "cohort/base/callable.h"
#include "cohort/strategy/internal/collective.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

namespace internal::strategy {

/// A Variable, PerReplica<Tensor> or Mirrored<Tensor>: what collectives read as one tensor.
template <class T>
inline constexpr bool is_read_as_tensor_v = ReadsAsTensor<T> && !values::is_leaf_v<T>;
template <class T>
using Collected = std::conditional_t<is_read_as_tensor_v<T>, Tensor, T>;

}  // namespace internal::strategy

/// Empty in cross-replica context; every call on an empty one throws FailedPrecondition that says
/// so. All of it may stand in any control flow, as long as all replicas take the same.
/// Threads: bound to its replica's thread. TF: tf.distribute.ReplicaContext.
class ReplicaContext {
 public:
  ReplicaContext() = default;  ///< Empty.
  /// Of the strategy's local replica `replica`.
  ReplicaContext(std::shared_ptr<StrategyExtended> strategy, int replica)
      : strategy_(std::move(strategy)), replica_(replica) {}
  explicit operator bool() const { return strategy_ != nullptr; }

  /// Among the replicas of all workers.
  int replica_id_in_sync_group() const;
  /// Of all workers.
  int num_replicas_in_sync() const { return checked().num_replicas_in_sync(); }
  Strategy strategy() const;
  /// This replica's device only.
  std::vector<Device> devices() const;
  /// "ReplicaContext(MirroredStrategy, replica id 1)"
  std::string to_string() const;

  /// The reduction of all replicas' values, on every replica; all leaves of a nest at once. A
  /// number counts once per replica, a variable as its value. Differentiable for tensors: the
  /// gradient is all-reduced as well.
  /// Order: a merge point; replicas add their shares at the same time, each in replica order. All
  ///        workers come to it in the same order.
  /// Errors: InvalidArgument if structure, shapes, dtypes or types of numbers differ between the
  ///         replicas of a worker; FailedPrecondition if they differ between workers (it names
  ///         both), or if another replica or worker is at another collective or merge call.
  template <class T>
  internal::strategy::Collected<T> all_reduce(ReduceOpArg op, const T& nest,
                                              const CommunicationOptions& options = {}) const;
  /// Joins all replicas' tensors along `axis`, all leaves at once. Sizes along it may differ.
  /// Order: a merge point. Errors: as all_reduce; Unimplemented for IndexedSlices.
  /// Differentiable: each replica gets its range of the sum of the gradients.
  template <class T>
  internal::strategy::Collected<T> all_gather(const T& nest, int64_t axis,
                                              const CommunicationOptions& options = {}) const;

  /// fn(Strategy&, const PerReplica<A>&...) runs once, in cross-replica context, when every
  /// replica has come; arguments are read while their replica waits. Returns this replica's part
  /// of the result.
  template <class Fn, class... A>
  auto merge_call(const Fn& fn, const A&... args) const;

 private:
  StrategyExtended& checked() const;
  /// The strategy, for what all replicas do together. Errors: FailedPrecondition on another
  /// replica's thread than this context's.
  StrategyExtended& here() const;
  std::shared_ptr<StrategyExtended> strategy_;
  int replica_ = 0;  // local
};

namespace internal::strategy {

/// What a replica brings to a merge_call of fn.
template <class Fn, class... A>
struct MergeCall {
  std::tuple<const A*...> arguments;
};

/// All replicas' I-th argument.
template <std::size_t I, class Fn, class... A>
auto regrouped(runtime::Brought<MergeCall<Fn, A...>> all) {
  using T = std::tuple_element_t<I, std::tuple<A...>>;
  std::vector<T> values;
  for (const auto& one : all) values.push_back(*std::get<I>(one.arguments));
  return PerReplica<T>(std::move(values));
}

/// merge_call, of a function that takes what it will get.
template <class Fn, class... A>
auto call_merged(StrategyExtended& strategy, const Fn& fn, const A&... args) {
  using Call = MergeCall<Fn, A...>;
  using R = std::invoke_result_t<const Fn&, Strategy&, const PerReplica<A>&...>;
  const Call mine{{&args...}};
  const auto call = [&](runtime::Brought<Call> all) -> R {
    Strategy handle(strategy.shared_from_this());
    return [&]<std::size_t... I>(std::index_sequence<I...>)->R {
      return fn(handle, regrouped<I>(all)...);
    }
    (std::index_sequence_for<A...>());
  };
  if constexpr (std::is_void_v<R>) {
    strategy.merge("merge_call", mine, call);
  } else {
    const auto whole = strategy.merge("merge_call", mine, call);
    using Part = std::remove_cvref_t<decltype(values::unwrap(*whole, 0))>;
    Part part(values::unwrap(*whole, std::max(0, current_replica()), "merge_call"));
    note_tensors(part);
    return part;
  }
}

}  // namespace internal::strategy

template <class Fn, class... A>
auto ReplicaContext::merge_call(const Fn& fn, const A&... args) const {
  constexpr bool kIsCallable = std::is_invocable_v<const Fn&, Strategy&, const PerReplica<A>&...>;
  static_assert(kIsCallable,
                "[replica_context.merge_call] the function cannot be called with these arguments: "
                "it takes (Strategy&, const PerReplica<A>&...), one PerReplica for each argument "
                "after the function");
  if constexpr (kIsCallable) {
    StrategyExtended& strategy = here();
    return internal::strategy::call_merged(
        strategy, internal::base::checked_function("[replica_context.merge_call]", fn), args...);
  }
}

template <class T>
internal::strategy::Collected<T> ReplicaContext::all_reduce(
    ReduceOpArg op, const T& nest, const CommunicationOptions& options) const {
  StrategyExtended& strategy = here();
  if constexpr (internal::strategy::is_read_as_tensor_v<T>) {
    return all_reduce(op, nest.as_tensor(), options);
  } else if constexpr (std::is_same_v<T, Tensor>) {
    Tensor out;
    const internal::collectives::CollectiveLeaf leaf{
        .kind = internal::collectives::CollectiveLeaf::Kind::kTensor, .in = &nest, .out = &out};
    internal::strategy::all_reduce_together(strategy, op, std::span(&leaf, 1), options);
    return out;
  } else {
    T out = nest;
    internal::strategy::LeafPairs pairs(nest, out);
    internal::strategy::all_reduce_together(strategy, op, pairs.leaves(), options,
                                            {.nest = internal::values::NestRef::of(nest)});
    pairs.finish();
    return out;
  }
}

template <class T>
internal::strategy::Collected<T> ReplicaContext::all_gather(
    const T& nest, int64_t axis, const CommunicationOptions& options) const {
  if constexpr (internal::strategy::is_read_as_tensor_v<T>) {
    return all_gather(nest.as_tensor(), axis, options);
  } else {
    T out = nest;
    internal::strategy::LeafPairs pairs(nest, out);
    internal::strategy::all_gather_together(here(), axis, pairs.leaves(),
                                            {.nest = internal::values::NestRef::of(nest)});
    pairs.finish();
    return out;
  }
}

/// As to_string().
std::ostream& operator<<(std::ostream& out, const ReplicaContext& context);

}  // namespace cohort
