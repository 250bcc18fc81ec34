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
// lists every value with its offset and checksum. It is written under a temporary name, flushed to
// the disk, and renamed: under its own name it is complete, or not there at all.
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

/// What a restore still has to do.
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
/// With objects of a strategy of several workers every worker calls save and restore, each with
/// its own objects. The chief (worker 0) writes and reads, at the path that it gives; others get
/// its values, and write what they keep of slots into its checkpoint if they find it, there or
/// beside their own path, which else is ignored. Calls return when the chief is done. Threads: one
/// caller at a time, in cross-replica context, while nothing runs on the replicas. TF:
/// tf.train.Checkpoint.
class Checkpoint {
 public:
  /// Errors: InvalidArgument for a name that is empty or has a '/', or no objects.
  explicit Checkpoint(const std::map<std::string, TrackableRef>& roots);

  /// Writes the folder `path`; a checkpoint of that name is replaced atomically. Values that a
  /// restore still holds for variables that do not exist yet are saved, too. Temporary files
  /// that killed processes left of this path, or of one with other digits, are removed.
  /// Errors: FailedPrecondition in a replica, for objects that were destroyed, and while nothing
  ///         has a value yet; on all workers, if they save different objects. InvalidArgument for
  ///         dtypes that the format lacks; Error of kAlreadyExists if `path` is something else than
  ///         a checkpoint, of kAborted if another program has removed what was being written; Error
  ///         with the system's reason. An error leaves a checkpoint that was there before as it
  ///         was.
  void save(const std::string& path) const;

  /// Sets every value. Variables that are made later (models that are not built) are set as they
  /// are made, and what does not agree is an error there.
  /// Errors: InvalidArgument that lists the paths of values that do not agree, with type and shape
  ///         expected and got; nothing was set then. InvalidArgument, too, if an iterator's
  ///         pipeline has changed: other iterators may have been restored then, and nothing else.
  ///         DataLoss with file and byte, and for a link or anything but a regular file in place
  ///         of one of its files; Error of kNotFound; FailedPrecondition as save.
  RestoreStatus restore(const std::string& path, const RestoreOptions& options = {}) const;

  /// A copy that has this object, too, or instead of the one so named. Errors: as the constructor.
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
