// SPDX-License-Identifier: Apache-2.0
//
// Files as checkpoints need them: written whole or not at all, read at given places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cohort::internal {

/// A file that appears under its name only with commit().
/// Owns: the temporary file beside it; the destructor removes what was not committed.
class AtomicFile {
 public:
  /// Errors: Error with the system's reason.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  /// Flushes to the disk, renames, flushes the folder.
  void commit();

 private:
  const std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

class InputFile {
 public:
  /// Errors: Error with the system's reason; InvalidArgument for a folder or a pipe.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  /// Errors: DataLoss if the file ends before.
  void read(uint64_t offset, void* out, std::size_t bytes) const;

 private:
  const std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace cohort::internal
