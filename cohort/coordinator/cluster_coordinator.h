// SPDX-License-Identifier: Apache-2.0
//
// ClusterCoordinator: by it the chief schedules registered functions, which run on any worker that
// is free.
//
//   ClusterCoordinator coordinator(strategy);               // a ParameterServerStrategy
//   auto data = coordinator.make_iterator(coordinator.create_per_worker_dataset(make_data, 64));
//   RemoteValue<Tensor> loss;
//   for (int step = 0; step < 1000; ++step) loss = coordinator.schedule(train_step, data);
//   coordinator.join();
//   std::printf("loss %g\n", coordinator.fetch(loss).item<double>());
//
// The death of a worker is no error: its functions go to others, and it gets its datasets and
// resources anew when it has restarted. So a function runs at least once, not exactly once; what
// it changes in variables counts exactly once where schedule_exactly_once() asks for that.
//
// When a function throws, nothing more is begun; the next schedule(), join() or done() waits for
// those that run, throws its error, and cancels what was waiting. After that all goes on as before.
// Where a parameter server is lost everything throws Unavailable that names it, from then on; with
// ParameterServerOptions::replicas DataLoss that names all that kept a shard, where they are lost.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/handle.h"
#include "cohort/coordinator/function.h"
#include "cohort/coordinator/internal/remote_result.h"
#include "cohort/coordinator/internal/resource_handle.h"
#include "cohort/strategy/distributed_dataset.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

namespace internal::coordinator {
struct CoordinatorAccess;
class CoordinatorCore;
}  // namespace internal::coordinator

/// The future result of a scheduled function. Handle; the coordinator keeps the result from the end
/// of the function on, whatever becomes of the worker. Threads: thread-safe.
/// TF: distribute.coordinator.RemoteValue.
template <class T>
class RemoteValue {
 public:
  /// Of no function; using it throws FailedPrecondition.
  RemoteValue() = default;
  /// Blocks: until the function has ended. Errors: what it has thrown, with its class, or as Error
  ///         kUnknown an exception that is not Cohort's; Cancelled; Unavailable for good once a
  ///         parameter server is lost.
  T get() const {
    const internal::coordinator::EncodedValues& value =
        internal::base::held(result_, "RemoteValue")->wait();
    if constexpr (!std::is_void_v<T>) {
      internal::coordinator::ValueReader in(value);
      T out = internal::coordinator::read_value<T>(in);
      in.end();
      return out;
    }
  }
  /// The same.
  T fetch() const { return get(); }
  RemoteStatus status() const { return internal::base::held(result_, "RemoteValue")->status(); }

 private:
  friend class ClusterCoordinator;
  explicit RemoteValue(std::shared_ptr<internal::coordinator::RemoteResult> result)
      : result_(std::move(result)) {}
  std::shared_ptr<internal::coordinator::RemoteResult> result_;
};

/// One T on every worker, made there when it is first needed, and again after a restart. It can be
/// given to functions, which get this worker's as T&; it cannot be read here. Handle: the workers
/// let go of theirs after the last copy. TF: distribute.experimental.coordinator.PerWorkerValues.
template <class T>
class PerWorkerValues {
 public:
  PerWorkerValues() = default;
  /// Internal.
  explicit PerWorkerValues(std::shared_ptr<internal::coordinator::ResourceHandle> handle)
      : handle_(std::move(handle)) {}
  const std::shared_ptr<internal::coordinator::ResourceHandle>& handle() const {
    return internal::base::held(handle_, "PerWorkerValues");
  }

 private:
  std::shared_ptr<internal::coordinator::ResourceHandle> handle_;
};

using PerWorkerDataset = PerWorkerValues<data::Dataset>;
/// next() is called in the workers' functions alone.
using PerWorkerIterator = PerWorkerValues<DistributedIterator>;

namespace internal::coordinator {

template <class A>
inline constexpr bool is_per_worker_v = false;
template <class T>
inline constexpr bool is_per_worker_v<PerWorkerValues<T>> = true;

/// Whether an argument A can be given for a parameter P.
template <class P, class A>
constexpr bool is_passable() {
  using Value = typename Parameter<P>::Value;
  if constexpr (Parameter<P>::kIsPerWorker) {
    return std::is_same_v<A, PerWorkerValues<Value>>;
  } else if constexpr (Parameter<P>::kIsVariable) {
    return std::is_same_v<A, Variable>;
  } else {
    return std::is_convertible_v<const A&, Value>;
  }
}

template <class Parameters, class... A>
inline constexpr bool are_passable_v = false;
template <class... P, class... A>
requires(sizeof...(P) ==
         sizeof...(A)) inline constexpr bool are_passable_v<std::tuple<P...>, A...> =
    (is_passable<P, A>() && ...);
/// As many arguments as parameters, each of which the parameter takes: a nest's value, a
/// PerWorkerValues<T> for T&, a Variable. The future result of another function (RemoteValue)
/// cannot be passed.
template <class Parameters, class... A>
concept Passable = are_passable_v<Parameters, A...>;

template <class P, class A>
void write_argument(ValueWriter& out, const A& argument) {
  if constexpr (Parameter<P>::kIsPerWorker) {
    out.kind(ValueKind::kPerWorker);
    out.number(argument.handle()->id());
    out.keep(argument.handle());
  } else if constexpr (Parameter<P>::kIsVariable) {
    out.kind(ValueKind::kVariable);
    out.text(argument.name());
  } else if constexpr (Parameter<P>::kIsContext) {
    write_context(out, cohort::data::InputContext(argument));
  } else {
    const typename Parameter<P>::Value& value = argument;
    write_value(out, value);
  }
}

template <class T>
inline constexpr bool is_remote_v = false;
template <class T>
inline constexpr bool is_remote_v<RemoteValue<T>> = true;
template <class T>
inline constexpr bool is_vector_v = false;
template <class T>
inline constexpr bool is_vector_v<std::vector<T>> = true;
template <class T>
inline constexpr bool is_map_v = false;
template <class K, class T>
inline constexpr bool is_map_v<std::map<K, T>> = true;
template <class T>
inline constexpr bool is_tuple_v = false;
template <class... T>
inline constexpr bool is_tuple_v<std::tuple<T...>> = true;

/// A nest with the values of its RemoteValues.
template <class T>
auto fetched(const T& nest) {
  if constexpr (is_remote_v<T>) {
    return nest.get();
  } else if constexpr (is_vector_v<T>) {
    std::vector<decltype(fetched(std::declval<const typename T::value_type&>()))> out;
    for (const auto& each : nest) out.push_back(fetched(each));
    return out;
  } else if constexpr (is_map_v<T>) {
    std::map<typename T::key_type,
             decltype(fetched(std::declval<const typename T::mapped_type&>()))>
        out;
    for (const auto& [key, each] : nest) out.emplace(key, fetched(each));
    return out;
  } else if constexpr (is_tuple_v<T>) {
    return std::apply([](const auto&... each) { return std::make_tuple(fetched(each)...); }, nest);
  } else if constexpr (requires { nest.first, nest.second; }) {
    return std::make_pair(fetched(nest.first), fetched(nest.second));
  } else {
    return nest;
  }
}

}  // namespace internal::coordinator

struct ScheduleOptions {
  /// By which a program that runs again finds the function, with a journal
  /// (ParameterServerOptions): one that has ended is not run again, its result is that of before.
  /// The same function with the same arguments each time: resources (PerWorkerValues) count by the
  /// order in which the program makes them. Empty: none.
  std::string id = {};
  /// False for a function that changes no variable, such as an evaluation: with a staleness bound
  /// (ParameterServerOptions) it is begun however far its worker is ahead, and no step waits for
  /// it.
  bool is_step = true;
};

/// Handle. A strategy has one coordinator; its workers are given nothing more to do when the last
/// handle is gone. Threads: thread-safe. TF: distribute.coordinator.ClusterCoordinator.
class ClusterCoordinator {
 public:
  /// Errors: InvalidArgument unless the strategy has parameter servers.
  explicit ClusterCoordinator(const Strategy& strategy);
  bool operator==(const ClusterCoordinator& other) const { return core_ == other.core_; }

  /// Queues f for any worker that is free; its arguments are read now. Order: handed out as they
  /// were scheduled, each may end before or after the others.
  /// Blocks: while 256 * 1024 functions wait, and where an error is pending until no function runs.
  /// Errors: InvalidArgument for a function that is not registered, and arguments of more than 63
  ///         MiB; the error of an earlier function, and this one is not queued.
  template <class R, class... P, class... A>
  requires internal::coordinator::Passable<std::tuple<P...>, A...> RemoteValue<R> schedule(
      R (*f)(P...), const A&... args) {
    return schedule(ScheduleOptions(), f, args...);
  }
  /// schedule({.id = "step 17"}, f, ...). An id that is under way gives that one's result; one that
  /// has thrown is run again.
  /// Errors: FailedPrecondition for an id without a journal, and one of another function or other
  ///         arguments, that names both; Error kUnknown for one that has ended with it.
  template <class R, class... P, class... A>
  requires internal::coordinator::Passable<std::tuple<P...>, A...> RemoteValue<R> schedule(
      const ScheduleOptions& options, R (*f)(P...), const A&... args) {
    static_assert(!internal::coordinator::makes_resource_v<R>,
                  "[schedule] what makes a resource or dataset belongs to "
                  "create_per_worker_resource or create_per_worker_dataset");
    return RemoteValue<R>(put(reinterpret_cast<internal::coordinator::AnyFunction>(f),
                              arguments_of<P...>(args...), options, /*counts_once=*/false));
  }
  /// As schedule(), for a function whose changes of the strategy's variables, optimizers' slots and
  /// SavedIterators' positions are applied once, however often it is run, and not at all if it
  /// throws. They are applied when it has ended, on each server at its own time, before its result
  /// is available: the function itself still reads the old values, also after its own assignments;
  /// the next function on the same worker reads the new ones. Not covered: variables and slots that
  /// it makes, which exist at once; the worker's own state, such as positions of other iterators;
  /// threads that it starts.
  /// Errors: as schedule(); FailedPrecondition for a strategy without parameter servers. Its
  ///         result: FailedPrecondition where it has caught the error of a change and gone on;
  ///         Error kResourceExhausted for changes of more than 1 GiB that wait on one server; Error
  ///         kUnknown where a server has not applied them, and others may have.
  /// Cost: a copy of the changes on their servers, and a message to all servers; no other function
  /// follows it in the message that brings it to its worker.
  template <class R, class... P, class... A>
  requires internal::coordinator::Passable<std::tuple<P...>, A...> RemoteValue<R>
  schedule_exactly_once(R (*f)(P...), const A&... args) {
    return schedule_exactly_once(ScheduleOptions(), f, args...);
  }
  /// As schedule() with an id: it counts once also where the coordinator's process is started
  /// again.
  template <class R, class... P, class... A>
  requires internal::coordinator::Passable<std::tuple<P...>, A...> RemoteValue<R>
  schedule_exactly_once(const ScheduleOptions& options, R (*f)(P...), const A&... args) {
    static_assert(!internal::coordinator::makes_resource_v<R>,
                  "[schedule_exactly_once] what makes a resource or dataset belongs to "
                  "create_per_worker_resource or create_per_worker_dataset");
    return RemoteValue<R>(put(reinterpret_cast<internal::coordinator::AnyFunction>(f),
                              arguments_of<P...>(args...), options, /*counts_once=*/true));
  }
  /// Whether this is the program of before, started again: its variables have the values that they
  /// had, and functions with ids are found. Else variables are new: restore the last checkpoint.
  bool resumed() const;
  /// Behind join() and a saved checkpoint from which a program that runs again would go on: results
  /// of all functions so far are forgotten, which it does not schedule any more.
  /// Errors: FailedPrecondition without a journal, and while functions wait or run; Error with the
  ///         system's reason.
  void forget_finished();
  /// Blocks: until all scheduled functions have ended. Errors: the first error of one of them; the
  /// next call does not throw it again.
  void join();
  /// Whether all scheduled functions have ended. Errors: as join(); blocks only if there is one.
  bool done();
  /// As RemoteValue::get; of a vector, map, pair or tuple, also within each other, the same with
  /// values in their places, and with what is no RemoteValue as it is.
  template <class T>
  auto fetch(const T& nest) const {
    return internal::coordinator::fetched(nest);
  }

  /// fn, registered, makes the dataset of each worker there. Nothing is sharded: fn says what a
  /// worker reads, e.g. by get_current_worker_index; endless and shuffled data suit best.
  /// Errors: what fn throws, by the functions that use the dataset.
  template <class... P>
  PerWorkerDataset create_per_worker_dataset(data::Dataset (*fn)(P...),
                                             const std::remove_cvref_t<P>&... args) {
    return PerWorkerDataset(add_resource(reinterpret_cast<internal::coordinator::AnyFunction>(fn),
                                         arguments_of<P...>(args...)));
  }
  /// The same of a function that is told which of the workers' pipelines it makes:
  /// Dataset make_data(const InputContext& context) { return numbers().shard(
  ///     context.num_input_pipelines, context.input_pipeline_id); }
  template <class... P>
  PerWorkerDataset create_per_worker_dataset(data::Dataset (*fn)(const data::InputContext&, P...),
                                             const std::remove_cvref_t<P>&... args) {
    internal::coordinator::ValueWriter out;
    internal::coordinator::write_context(out, std::nullopt);
    (internal::coordinator::write_argument<P>(out, args), ...);
    return PerWorkerDataset(add_resource(reinterpret_cast<internal::coordinator::AnyFunction>(fn),
                                         Arguments(std::move(out))));
  }
  /// The pipeline's elements, read here, once and now; each worker has all of them, in this order,
  /// in every pass. For small data: what is large, endless or shuffled anew a registered function
  /// makes there. Errors: InvalidArgument for more than 54 MiB of all such; what the pipeline
  /// throws.
  PerWorkerDataset create_per_worker_dataset(const data::Dataset& pipeline);
  /// Blocks: until a worker has made its dataset, and is free. Errors: what the function that makes
  /// it throws. TF: PerWorkerDataset.element_spec.
  data::ElementSpec element_spec(const PerWorkerDataset& dataset);
  /// An iterator of each worker's dataset. A restarted worker starts over. TF: iter(dataset).
  PerWorkerIterator make_iterator(const PerWorkerDataset& dataset);
  /// fn, registered, makes an object on each worker, in the strategy's scope: state that outlives a
  /// function's call, such as a model. Errors: as create_per_worker_dataset.
  template <class T, class... P>
  PerWorkerValues<T> create_per_worker_resource(std::shared_ptr<T> (*fn)(P...),
                                                const std::remove_cvref_t<P>&... args) {
    return PerWorkerValues<T>(add_resource(reinterpret_cast<internal::coordinator::AnyFunction>(fn),
                                           arguments_of<P...>(args...)));
  }

  Strategy strategy() const { return strategy_; }

 private:
  friend struct internal::coordinator::CoordinatorAccess;
  ClusterCoordinator(Strategy strategy,
                     std::shared_ptr<internal::coordinator::CoordinatorCore> core)
      : strategy_(std::move(strategy)), core_(std::move(core)) {}

  /// What a function is given, and what has to live until it has been run.
  struct Arguments {
    explicit Arguments(internal::coordinator::ValueWriter out)
        : kept(out.kept()), values(std::move(out).finish()) {}
    std::vector<std::shared_ptr<const void>> kept;
    internal::coordinator::EncodedValues values;
  };
  template <class... P, class... A>
  static Arguments arguments_of(const A&... args) {
    internal::coordinator::ValueWriter out;
    (internal::coordinator::write_argument<P>(out, args), ...);
    return Arguments(std::move(out));
  }
  std::shared_ptr<internal::coordinator::RemoteResult> put(
      internal::coordinator::AnyFunction function, Arguments arguments,
      const ScheduleOptions& options, bool counts_once);
  std::shared_ptr<internal::coordinator::ResourceHandle> add_resource(
      internal::coordinator::AnyFunction fn, Arguments arguments);

  Strategy strategy_;
  std::shared_ptr<internal::coordinator::CoordinatorCore> core_;
};

}  // namespace cohort
