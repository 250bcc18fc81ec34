// SPDX-License-Identifier: Apache-2.0
//
// Files as checkpoints need them: written whole or not at all, read at given places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::internal::checkpoint {

/// Throws Error with the system's reason. `operation`: as texts begin, without brackets.
[[noreturn]] void throw_system(const char* operation, const std::string& path, int error);

/// "." for a path without a folder.
std::string folder_of(const std::string& path);
/// Makes what happened to names in a folder last. Does nothing where that cannot be asked for: file
/// systems that know no such thing, folders that one may not read.
/// Errors: Error with the system's reason: what was written may not last then.
void flush_folder(const char* operation, const std::string& folder);
/// Makes a folder and those above it, as far as they are missing, and makes their names last.
/// Errors: Error with the system's reason.
void make_folders(const char* operation, const std::string& folder);

/// A new file. Errors of all functions: Error with the system's reason.
class OutputFile {
 public:
  /// `shown`: the path that errors name. Errors: also if there is such a file.
  OutputFile(const char* operation, const std::string& path, std::string shown);
  /// An open file. Owns: the descriptor.
  OutputFile(const char* operation, int descriptor, std::string shown);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  /// At a place of the file; what write() gets afterwards still goes where it would have gone.
  void write_at(uint64_t place, const void* data, std::size_t bytes);
  /// Onto the disk.
  void flush();

 private:
  const char* const operation_;
  const std::string shown_;
  int descriptor_ = -1;
};

/// A file that appears under its name only with commit().
/// Owns: a temporary file beside it, which it holds locked (temporary.h); the destructor removes
/// what was not committed.
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
  std::string temporary_;
  OutputFile file_;
  bool committed_ = false;
};

/// A folder whose files are read without following a link out of it.
class InputFolder {
 public:
  /// Errors: Error with the system's reason.
  InputFolder(const char* operation, std::string path);
  ~InputFolder();
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  const char* operation() const { return operation_; }
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  const char* const operation_;
  const std::string path_;
  int descriptor_ = -1;
};

/// A regular file; nothing else is opened or waited for. Errors of all functions: DataLoss where
/// the disk cannot read what it holds; else Error with the system's reason.
class InputFile {
 public:
  /// Errors: InvalidArgument for a folder, a pipe, a device.
  InputFile(const char* operation, std::string path);
  /// A file of the folder by its plain name. Errors: DataLoss for what is no regular file, or a
  /// link.
  InputFile(const InputFolder& folder, const std::string& name);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// When it was written, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }
  /// Errors: DataLoss if the file ends before.
  void read(uint64_t offset, void* out, std::size_t bytes) const;
  /// All of it. Errors: DataLoss if it has more than `most` bytes.
  std::string read_all(uint64_t most) const;

 private:
  enum class Within { kAnywhere, kFolder };
  void open(int folder, const char* name, Within within);
  [[noreturn]] void throw_unreadable(int error) const;

  const char* const operation_;
  const std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  int64_t modified_ = 0;
};

}  // namespace cohort::internal::checkpoint
