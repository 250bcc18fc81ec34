// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: the state of a training program in a folder.
//
//   Checkpoint checkpoint({{"model", model}, {"optimizer", optimizer}, {"data", iterator},
//                          {"epoch", &epoch}});
//   checkpoint.save("run/after_warmup");
//   checkpoint.restore("run/after_warmup");       // in a fresh process, too
//
// What is kept is logical: what is saved under one strategy restores under any other, with any
// number of replicas. Values have paths: "model/dense/kernel", where the parts are the names given
// here and in the program, or classes and their order ("dense", "dense_1") within their model.
// An optimizer's slots are named after their variables: "optimizer/model/dense/kernel/momentum".
//
// The folder holds a .safetensors file, or as many as a value has pieces, and cohort.json, which
// lists every value with its place and checksum. It is written under another name, flushed to the
// disk, and renamed: it is whole under its name or not there at all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/trackable.h"

namespace cohort {

class CheckpointManager;
namespace internal::checkpoint {
struct LiveValue;
struct SavedPieces;
struct SavedValues;
class SavingGroup;
struct ObjectGraph;
}  // namespace internal::checkpoint

struct RestoreOptions {
  /// false: every saved and every live value must match. true: what both have is restored; types
  /// and shapes must agree still. TF: expect_partial.
  bool allow_partial = false;
};

/// What a restore has still to do.
class RestoreStatus {
 public:
  explicit RestoreStatus(std::shared_ptr<const internal::checkpoint::RestoreSession> session)
      : session_(std::move(session)) {}
  /// Paths of saved values that no object has taken yet: the variables are not made, or, with
  /// allow_partial, not there.
  std::vector<std::string> waiting() const;
  /// Errors: FailedPrecondition that lists waiting(), if there are any.
  const RestoreStatus& assert_consumed() const;
  /// Errors: FailedPrecondition that lists the paths of values that the objects have and the
  ///         checkpoint has not (with allow_partial), if there are any. What it has beyond them is
  ///         no error.
  const RestoreStatus& assert_existing_objects_matched() const;

 private:
  std::shared_ptr<const internal::checkpoint::RestoreSession> session_;
};

/// The state of some objects, by name; a copy is of the same objects. It keeps variables alive, but
/// no models, layers, optimizers and iterators.
/// Where objects are of a strategy of several workers, all of them save and restore, with what is
/// theirs, whatever path each gives: the chief (worker 0) writes, at its path, and reads, and the
/// others have its values. Calls end when it has.
/// Threads: one caller at a time, cross-replica, with all replicas at rest. TF:
/// tf.train.Checkpoint.
class Checkpoint {
 public:
  /// Errors: InvalidArgument for a name that is empty or has a '/', or no objects.
  explicit Checkpoint(const std::map<std::string, TrackableRef>& roots);

  /// Writes the folder `path`; a checkpoint of that name is replaced in one step. Values that a
  /// restore still keeps for variables that are not made are saved, too. What killed writers of
  /// this path, or of one that differs in numbers only, have left is removed.
  /// Errors: FailedPrecondition in a replica, for objects that have ended, or if nothing has a
  /// value
  ///         yet; InvalidArgument for dtypes without a place in the format; Error of kAlreadyExists
  ///         if `path` is something else than a checkpoint, of kAborted if another program has
  ///         removed what was being written; Error with the system's reason. What was there before
  ///         is then as it was. FailedPrecondition on all workers, if they save different objects.
  void save(const std::string& path) const;

  /// Sets every value. Variables that are made later (models that are not built) are set as they
  /// are made, and what does not agree is an error there.
  /// Errors: InvalidArgument that lists the paths of values that do not agree, with type and shape
  ///         expected and got; nothing was set then. InvalidArgument, too, if an iterator's
  ///         pipeline is another one: other iterators may have been set then, and nothing else.
  ///         DataLoss with file and byte, and for a link or anything but a regular file in place
  ///         of one of its files; Error of kNotFound; FailedPrecondition as save.
  RestoreStatus restore(const std::string& path, const RestoreOptions& options = {}) const;

  /// The same with one object more, or another one of that name. Errors: as the constructor.
  Checkpoint with(const std::string& name, const TrackableRef& object) const;
  /// Internal: who saves and restores with this process; null: nobody. Errors: FailedPrecondition
  /// in a replica.
  std::shared_ptr<internal::checkpoint::SavingGroup> group(const char* operation) const;

 private:
  friend class CheckpointManager;
  enum class Memory { kShared, kOwn };  ///< kOwn: later steps do not change it.
  std::shared_ptr<internal::checkpoint::RestoreSession> restore_values(
      internal::checkpoint::SavedValues saved, const std::string& source,
      const RestoreOptions& options, internal::checkpoint::SavingGroup* group) const;
  internal::checkpoint::SavedValues values(const char* operation, Memory memory) const;
  static Tensor read(const internal::checkpoint::LiveValue& live,
                     const std::function<Tensor()>& read, const std::optional<Shape>& shape,
                     Memory memory);
  static internal::checkpoint::SavedPieces read_pieces(const internal::checkpoint::LiveValue& live,
                                                       Memory memory);

  std::shared_ptr<const std::vector<std::pair<std::string, std::shared_ptr<Trackable>>>> roots_;
};

}  // namespace cohort
