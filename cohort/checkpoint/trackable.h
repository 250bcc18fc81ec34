// SPDX-License-Identifier: Apache-2.0
//
// Trackable: what a checkpoint sees of an object, named values and children.
//
//   struct Trainer {                                    // a class of one's own in a checkpoint
//     keras::Sequential model;
//     int64_t epoch = 0;
//     std::shared_ptr<Trackable> trackable() {
//       return trackable_group({{"model", model}, {"epoch", &epoch}});
//     }
//   };
//   Checkpoint checkpoint({{"trainer", trainer.trackable()}});
//
// Values are logical: the same whatever strategy the object lives under, so that what is saved
// under one restores under any other.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/runtime/tensor.h"

namespace cohort {

namespace internal::checkpoint {
class RestoreSession;
class SavingGroup;
}  // namespace internal::checkpoint

/// One box (a sub-array) of a value that its object keeps in pieces, such as shards.
struct TrackedPiece {
  Shape offset = {};  ///< Where it begins in the value.
  Shape extent = {};
  std::function<Tensor()> read = {};
  std::function<void(const Tensor&)> write = {};  ///< Gets a tensor of this extent, on the CPU.
};

/// One value of an object: what it is, and how it is read and set.
struct TrackedValue {
  std::string name = {};  ///< Within the object; empty: it is the only value.
  DType dtype = kFloat32;
  std::optional<Shape> shape = {};  ///< Unset: one axis of any length.
  std::function<Tensor()> read = {};
  std::function<void(const Tensor&)> write = {};  ///< Gets this dtype and shape, on the CPU.
  const void* identity = nullptr;                 ///< Values of one identity are saved once.
  /// The identity of the value this one belongs to, whose path becomes part of its name: an
  /// optimizer's slot is found by its variable, not by its place in a list.
  const void* owner = nullptr;
  /// Instead of read and write, of a value that is kept in pieces (shards): boxes that fill its
  /// shape, each element once. They are saved one by one, and a restore puts them together whatever
  /// the pieces were when it was saved, or are now.
  /// Beside read and write, of a value that the processes of `group` have spread over them: each
  /// lists all boxes, alike, and can read its own; read of the others' is null. Where they save
  /// onto one disk, each writes what it has; else read() brings all of it together.
  std::vector<TrackedPiece> pieces = {};
  /// Of several processes, such as a strategy's workers, the ones that have this value in common:
  /// all read it and set it together, and the chief's counts. Null: it is this process's own, and
  /// where others save with it, each has its own, which are kept apart unless they are equal.
  std::shared_ptr<internal::checkpoint::SavingGroup> group = {};

  bool is_spread() const { return group != nullptr && read != nullptr && !pieces.empty(); }
};

/// Bytes of any length as a value, e.g. a position.
TrackedValue tracked_bytes(std::string name, std::function<std::string()> read,
                           std::function<void(std::string_view)> write);

class Trackable;

/// All that a checkpoint keeps of an object.
struct TrackedParts {
  std::vector<TrackedValue> values = {};
  std::vector<std::pair<std::string, std::shared_ptr<Trackable>>> children = {};
  bool growing = false;  ///< More values may come, e.g. of a layer that is not built.
  bool gone = false;     ///< The object does not exist any more.
  /// The processes that have such an object each, and save it together. Null: only this one, or as
  /// its values say.
  std::shared_ptr<internal::checkpoint::SavingGroup> group = {};
};

/// An object as checkpoints see it. Derive where a class has values of its own to keep; most give
/// a trackable_group.
class Trackable {
 public:
  virtual ~Trackable() = default;
  /// Order: names and order depend on the program alone, not on what else is in the process.
  virtual TrackedParts parts() const = 0;
};

/// The Trackable of an object whose values may come later. The object owns it, tells it when there
/// are new values, and when it goes itself.
/// Threads: thread-safe, but for what `parts` reads.
class TrackedObject final : public Trackable {
 public:
  explicit TrackedObject(std::function<TrackedParts()> parts) : parts_(std::move(parts)) {}

  TrackedParts parts() const override;
  /// Restores the new values, if a checkpoint has been waiting for them.
  /// Errors: InvalidArgument as Checkpoint::restore: the object is then not built.
  void grown();
  /// What a restore keeps for the object's value `name` until the object has it; undefined:
  /// nothing.
  Tensor waiting_value(const std::string& name) const;
  /// The object is destroyed: nothing waits for its values any more.
  void release();

  /// Internal: the restore that the object's next values belong to; null: none.
  void wait_for(std::shared_ptr<internal::checkpoint::RestoreSession> session);
  std::shared_ptr<internal::checkpoint::RestoreSession> waiting_for() const;

 private:
  mutable internal::base::Mutex mutex_;
  std::function<TrackedParts()> parts_ COHORT_GUARDED_BY(mutex_);  // null after release
  std::shared_ptr<internal::checkpoint::RestoreSession> session_ COHORT_GUARDED_BY(mutex_);
};

/// Whatever has `trackable()`: Variable, keras::Model, Layer, Optimizer and Metric, Iterator,
/// DistributedIterator; or a number or text of the program, which has to stay where it is.
class TrackableRef {
 public:
  template <class T>
  requires requires(const T& t) {
    { t.trackable() } -> std::convertible_to<std::shared_ptr<Trackable>>;
  }
  TrackableRef(const T& object) : TrackableRef(object.trackable()) {}  // NOLINT: implicit by design
  TrackableRef(std::shared_ptr<Trackable> trackable);                  // NOLINT
  TrackableRef(int64_t* number);                                       // NOLINT
  TrackableRef(double* number);                                        // NOLINT
  TrackableRef(std::string* text);                                     // NOLINT

  const std::shared_ptr<Trackable>& trackable() const { return trackable_; }

 private:
  std::shared_ptr<Trackable> trackable_;
};

/// The position of an object that may end before: save() gives its bytes, restore(bytes) sets it.
template <class T>
std::shared_ptr<Trackable> trackable_position(std::weak_ptr<T> object);

/// An object that is nothing but one value.
std::shared_ptr<Trackable> trackable_value(TrackedValue value);
/// An object that is nothing but some values.
std::shared_ptr<Trackable> trackable_values(std::vector<TrackedValue> values);
/// An object that is nothing but named parts.
/// Errors: InvalidArgument for a name that is empty or has a '/'.
std::shared_ptr<Trackable> trackable_group(const std::map<std::string, TrackableRef>& parts);

namespace internal::checkpoint {

/// Names within one object: "dense", "dense_1", ...
class UniqueNames {
 public:
  std::string add(const std::string& name);

 private:
  std::set<std::string> taken_;
};

template <class T>
class TrackedPosition final : public Trackable {
 public:
  explicit TrackedPosition(std::weak_ptr<T> object) : object_(std::move(object)) {}
  TrackedParts parts() const override {
    const std::shared_ptr<T> object = object_.lock();
    if (object == nullptr) return {.gone = true};
    TrackedValue value = tracked_bytes(
        {}, [object] { return object->save(); },
        [object](std::string_view bytes) { object->restore(bytes); });
    value.identity = object.get();
    return {.values = {std::move(value)}};
  }

 private:
  const std::weak_ptr<T> object_;
};

}  // namespace internal::checkpoint

template <class T>
std::shared_ptr<Trackable> trackable_position(std::weak_ptr<T> object) {
  return std::make_shared<internal::checkpoint::TrackedPosition<T>>(std::move(object));
}

}  // namespace cohort
