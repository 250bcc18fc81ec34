// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint on the disk: a folder with one safetensors file per writer, and cohort.json. The
// files carry what PyTorch's distributed checkpoints expect of sharded safetensors, so that other
// tools open them, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/saved_values.h"
#include "cohort/checkpoint/internal/temporary.h"

namespace cohort::internal::checkpoint {

/// The files of one of several writers among those of all.
struct FileNumbers {
  std::size_t first = 0;
  std::size_t total = 0;
};
/// How many files the values need: tensors are in the first one, and pieces of a value each in one
/// of its own.
std::size_t file_count(const SavedValues& values);
/// Writes them into a folder and onto the disk. `path`: what errors name instead of the folder.
/// Returns their part of the table of contents, its files counted from 0.
/// Errors: InvalidArgument as save_tensors; Error with the system's reason.
Manifest write_files(const std::string& folder, const std::string& path, const SavedValues& values,
                     FileNumbers numbers);

/// A checkpoint that has its name only after publish(). The destructor removes what is left.
/// Errors of all functions: Error with the system's reason.
class NewCheckpoint {
 public:
  /// Makes a temporary folder beside `path`, and the folders above.
  explicit NewCheckpoint(const std::string& path);

  /// The temporary one.
  const std::string& folder() const { return folder_.path(); }

  /// Writes everything onto the disk. Once. Errors: InvalidArgument as save_tensors.
  void write(const SavedValues& values);
  /// Writes the table of contents of what its writers have written into folder(), which they say:
  /// first this one, then the others, in the order of their files. Once, instead of write().
  /// `values`: aliases and what is unfinished.
  /// Errors: Internal if pieces do not fill a value.
  void finish(const SavedValues& values, std::vector<Manifest> parts);

  enum class IfTaken { kRefuse, kReplace };
  /// Gives it the name `path`, in the same folder. Returns false if something has it and is to be
  /// refused. A checkpoint is replaced in one step.
  /// Errors: Error kAlreadyExists if something else than a checkpoint is to be replaced; kAborted
  ///         if somebody has removed what was written.
  bool publish(const std::string& path, IfTaken if_taken);

 private:
  void check_whole() const;
  bool rename_to_free(const std::string& path);
  bool replace(const std::string& path);

  std::string path_;  // that errors name
  TemporaryFolder folder_;
  std::vector<ManifestFile> files_;
  uint64_t manifest_bytes_ = 0;
};

/// Removes what writers of this path, or of one that differs in numbers only, have left when they
/// were killed. Errors: none.
void remove_leftovers(const std::string& path);
/// Writes a checkpoint, in place of one that has the name, and removes leftovers.
/// Errors: as NewCheckpoint's. An older checkpoint is then as it was.
void write_checkpoint(const std::string& path, const SavedValues& values);

/// Reads and checks all of it. for_all: the run that wrote it goes on, so that it warns where
/// replicas here compute with another number of threads; not to evaluate or use a part of it.
/// Errors: DataLoss with file and byte for what is damaged, no regular file, or a link; Error of
///         kNotFound and others if it cannot be opened; kResourceExhausted.
SavedValues read_checkpoint(const std::string& path, bool for_all = true);

/// Why it cannot be restored; empty: it can, as far as may be seen without reading all of it. Files
/// that have been changed since it was written are read, and `read` remembers the last change, so
/// that this is done once.
std::string damage_of(const std::string& path, int64_t& read);

/// Whether `path` is a folder with a table of contents.
bool is_checkpoint(const std::string& path);

/// Tells a checkpoint from one that was put in its place.
struct CheckpointId {
  uint64_t device = 0;
  uint64_t file = 0;
  int64_t written = 0;  ///< Nanoseconds since 1970.
  bool operator==(const CheckpointId&) const = default;
};
/// nullopt: it is none.
std::optional<CheckpointId> checkpoint_id(const std::string& path);

/// Takes a checkpoint's name away. Returns the temporary one, for remove_all; empty: it is no
/// checkpoint, or stays. Errors: none.
std::string take_name(const std::string& path);

}  // namespace cohort::internal::checkpoint
