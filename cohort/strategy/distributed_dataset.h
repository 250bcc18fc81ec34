// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataset: for each step a batch for each replica.
//
//   auto dist = strategy.distribute_dataset(train.batch(global_batch));
//   for (auto& batch : dist) strategy.run(step, batch);
//   for (auto& [x, y] : dist) strategy.run(step, x, y);          // elements of two tensors
//
// distribute_dataset splits the batches of a dataset: of n rows over R replicas the first n mod R
// get one row more. A dataset whose options say AutoShardPolicy::kOff gives a partial batch to the
// parts of a full one from replica 0 on, as TensorFlow's new rebatch does; but a batch stays a step
// (TensorFlow fills a partial batch in mid-stream from the next one, so that steps and weights
// would depend on the number of replicas; dataset.rebatch(n) before does that for any number). A
// replica that gets nothing sees 0 rows, so that all take part in every step. Ragged rows
// (Element::ragged) are split like others. With one replica elements stay as they are, and need not
// be batches.
//
// Of replicas on GPUs a part's tensors are on the replica's device (InputOptions::fetch_to_device
// = false: on the host): a background thread has the next step in pinned memory, and its copies run
// while the GPUs compute this one. Strings and ragged rows stay on the host.
//
// Several workers: each has its own pipeline and gets its share of the data, by the policy of the
// dataset's options (data/pipeline/auto_shard.h). By files, by hints and without sharding a worker
// cuts its own batches into as many parts as all workers have replicas, and uses as many a step as
// it has replicas; by elements it takes its parts of batches that all workers read.
#pragma once

#include <functional>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cohort/base/callable.h"
#include "cohort/base/function_ref.h"
#include "cohort/base/handle.h"
#include "cohort/data/dataset.h"
#include "cohort/values/per_replica.h"

namespace cohort {

class StrategyExtended;
class Trackable;

using namespace data;  // NOLINT: Dataset, Element, batches' options are written without a prefix

namespace internal::checkpoint {
class SavingGroup;
}  // namespace internal::checkpoint
namespace internal::strategy {

/// What the iterators of a distributed dataset read.
struct DistributedInput {
  Dataset steps;             ///< Tuples of a part for each local replica.
  bool is_plain = false;     ///< There is one replica, and elements are its part.
  ElementSpec element_spec;  ///< Of a part.
  int replicas = 1;          ///< Local ones.
  int64_t global_batch_size = kUnknownDim;
  /// Set where workers may end at different steps: true on all of them if it is on one. Every
  /// worker calls it once for each step.
  std::function<bool(bool here)> any_worker = {};
  /// Set where there are other workers: tells them what the body throws.
  std::function<void(base::FunctionRef<void()> body)> guarded = {};
  values::DeviceList devices = {};  ///< Of the local replicas.
  bool uploads = false;             ///< A part goes to its replica's device, if that is a GPU.
  /// Several workers: who saves positions together, and whether one worker's is that of all.
  std::shared_ptr<checkpoint::SavingGroup> group = {};
  bool is_common = false;
  /// Set where several workers read the same steps: who reaches them.
  std::shared_ptr<StrategyExtended> common_workers = {};
};

}  // namespace internal::strategy

/// Position in a distributed input.
/// Errors: next throws what the pipeline throws, at the step where it fails, and can be called
///         again; FailedPrecondition inside a replica. With several workers what one's pipeline
///         throws is thrown on all, with that worker's rank: by next, or by what else they wait for
///         it in. The step is lost on all of them.
/// Threads: one caller at a time, cross-replica, but for cancel. Background threads end with the
/// iterator. TF: tf.distribute.DistributedIterator.
class DistributedIterator {
 public:
  /// The next step's batches; nullopt at the end, and ever after. With several workers that is when
  /// all have ended; those that have no more data until then get tensors of 0 rows. Where workers
  /// read the same steps, the first call after a step that failed meets the others: a step that one
  /// of them has read already is lost to all. Errors: also such a failure that was not thrown yet.
  std::optional<PerReplica<Element>> next();
  /// TensorFlow's name of next.
  std::optional<PerReplica<Element>> get_next_as_optional() { return next(); }
  /// Errors: Error of kOutOfRange at the end.
  PerReplica<Element> get_next();
  /// Of one replica's part.
  const ElementSpec& element_spec() const;

  /// The position of this worker, as Iterator::save says, to go on with the same steps after a
  /// restart; bytes, which fit in a file of tensors as one of kUint8. A strategy with another
  /// number of replicas can go on there, too, unless each replica reads a pipeline of its own;
  /// where workers read batches of their own, only as many workers with as many replicas.
  std::string save();
  /// Errors: as Iterator::restore; the position is then what it was.
  void restore(std::string_view state);

  /// The position, for a Checkpoint; it keeps no iterator alive. With several workers all save it:
  /// where they read batches of their own, it keeps the position of each. Order: as save.
  std::shared_ptr<Trackable> trackable() const;

  /// As Iterator::cancel. Threads: thread-safe.
  void cancel();
  /// As Iterator::report.
  PipelineReport report() const;

 private:
  friend class DistributedDataset;
  DistributedIterator(std::shared_ptr<const internal::strategy::DistributedInput> input,
                      Iterator steps);

  class State;
  class TrackedSteps;
  State& use(const char* operation = __builtin_FUNCTION()) const {
    return *internal::base::held(state_, "DistributedIterator", operation);
  }
  std::shared_ptr<State> state_;
};

/// Immutable; every iteration starts anew. TF: tf.distribute.DistributedDataset.
class DistributedDataset {
 public:
  /// Internal; Strategy::distribute_dataset makes them.
  explicit DistributedDataset(std::shared_ptr<const internal::strategy::DistributedInput> input)
      : input_(std::move(input)) {}

  DistributedIterator make_iterator() const;
  /// Goes on where the iterator was that saved `state`. Errors: as Iterator::restore.
  DistributedIterator make_iterator(std::string_view state) const;
  internal::data::RangeIterator<PerReplica<Element>, DistributedIterator> begin() const;
  std::default_sentinel_t end() const { return {}; }
  /// The steps as PerReplica of what Element::as<T...>() gives, which come apart: for
  /// (auto& [x, y, weight] : dist.as<Tensor, Tensor, Tensor>()) strategy.run(step, x, y, weight).
  /// Errors: the pass throws InvalidArgument for elements of another structure.
  template <class... T>
  auto as() const {
    static_assert(sizeof...(T) > 0,
                  "[distributed_dataset.as] say what an element has: dist.as<Tensor, Tensor>()");
    return internal::data::ConvertedRange(
        [input = internal::base::held(input_, "DistributedDataset")] {
          return DistributedDataset(input).make_iterator();
        },
        [](const PerReplica<Element>& step) {
          return step.map([](const Element& element) { return element.as<T...>(); });
        });
  }

  /// fn(fn(initial, first step), second step)...; fn takes the state and a const
  /// PerReplica<Element>& and returns the next state.
  template <class State, class F>
  State reduce(State initial, F fn) const {
    internal::base::checked_function("[distributed_dataset.reduce]", fn);
    for (const PerReplica<Element>& step : *this) initial = fn(std::move(initial), step);
    return initial;
  }

  /// Of one replica's part; rows are known where every step has the same.
  const ElementSpec& element_spec() const { return input().element_spec; }
  /// Steps of a pass, kInfiniteCardinality or kUnknownCardinality; of this worker's data.
  int64_t cardinality() const { return input().steps.cardinality(); }
  /// Rows of a full step of all workers together, or kUnknownDim.
  int64_t global_batch_size() const { return input().global_batch_size; }
  /// Internal: false where workers read batches of their own.
  bool has_common_position() const { return input().group == nullptr || input().is_common; }
  /// Local ones.
  int num_replicas() const { return input().replicas; }

 private:
  const internal::strategy::DistributedInput& input(
      const char* operation = __builtin_FUNCTION()) const {
    return *internal::base::held(input_, "DistributedDataset", operation);
  }
  std::shared_ptr<const internal::strategy::DistributedInput> input_;
};

/// "<DistributedDataset for 2 replicas of (float32[?,2], int64[?])>".
std::ostream& operator<<(std::ostream& out, const DistributedDataset& dataset);

/// Components 0 and 1 of elements of two tensors: for (auto& [x, y] : dist).
/// Errors: InvalidArgument for another structure.
template <std::size_t I>
PerReplica<Tensor> get(const PerReplica<Element>& step) {
  return step.map([](const Element& pair) { return get<I>(pair); });
}

}  // namespace cohort

template <>
struct std::tuple_size<cohort::PerReplica<cohort::data::Element>>
    : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, cohort::PerReplica<cohort::data::Element>> {
  using type = cohort::PerReplica<cohort::Tensor>;
};
