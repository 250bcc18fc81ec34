// SPDX-License-Identifier: Apache-2.0
//
// Files as checkpoints need them: written whole or not at all, read at given places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::internal {

/// Throws Error with the system's reason. `operation`: as texts begin, without brackets.
[[noreturn]] void throw_system(const char* operation, const std::string& path, int error);

/// Makes what happened to names in a folder last. A folder that cannot be opened is no error.
void flush_folder(const std::string& folder);
/// "." for a path without a folder.
std::string folder_of(const std::string& path);

/// A new file. Errors of all functions: Error with the system's reason.
class OutputFile {
 public:
  /// `shown`: the path that errors name. Errors: also if there is such a file.
  OutputFile(const char* operation, std::string path, std::string shown);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  /// Onto the disk.
  void flush();

 private:
  const char* const operation_;
  const std::string path_;
  const std::string shown_;
  int descriptor_ = -1;
};

/// A file that appears under its name only with commit().
/// Owns: the temporary file beside it; the destructor removes what was not committed.
class AtomicFile {
 public:
  /// Errors: Error with the system's reason.
  AtomicFile(const char* operation, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  OutputFile& file() { return file_; }
  /// Flushes to the disk, renames, flushes the folder.
  void commit();

 private:
  const char* const operation_;
  const std::string path_;
  const std::string temporary_;
  OutputFile file_;
  bool committed_ = false;
};

/// "path.tmp-<process>-<number>": of no other writer.
std::string temporary_name(const std::string& path);
bool is_temporary(std::string_view name);
/// Removes what writers that do not run any more have left in a folder, of names that begin so.
/// Order: where nobody of this process is writing such a name.
void remove_temporaries(const std::string& folder, std::string_view beginning);

class InputFile {
 public:
  /// Errors: Error with the system's reason; InvalidArgument for a folder or a pipe.
  InputFile(const char* operation, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Errors: DataLoss if the file ends before.
  void read(uint64_t offset, void* out, std::size_t bytes) const;

 private:
  const char* const operation_;
  const std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace cohort::internal
