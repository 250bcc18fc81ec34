// SPDX-License-Identifier: Apache-2.0
//
// Names of what is being written, and locks that say whether somebody still writes it:
//
//   ckpt-7.tmp-0f3a9c21-5d0be1f8a7c34e19        not whole yet, or not wanted any more
//   ckpt-7.tmp-0f3a9c21-5d0be1f8a7c34e19.lock   beside a folder: its writer holds it locked
//   ckpt-7.old-0f3a9c21-5d0be1f8a7c34e19        set aside while the new one takes its name
//
// The eight digits are of the machine since its start, the sixteen are random. A process id would
// say nothing: containers and hosts have equal ones. Locks are those of the open file (OFD): they
// end with their process, however that ends, and hold between containers and over NFS.
//
// What a machine that is another one (or was started anew) has left also has to be an hour old,
// since locks may not reach from there to here. Where a file system has no locks, nothing that
// others left is removed.
//
// Versions before these names wrote "ckpt-7.tmp-4242-0", without a lock. Such a one is removed,
// too, if it is an hour old, no process 4242 runs here, it holds nothing but what a save writes,
// and it cannot be the only checkpoint of its name.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace cohort::internal::checkpoint {

/// Whether it is exactly such a name.
bool is_temporary(std::string_view name);
/// The name that it stands for; empty: it is none.
std::string base_of_temporary(std::string_view name);

/// A temporary name for `path`, of nobody else.
std::string temporary_path(const std::string& path);

/// Removes what writers that have ended left in a folder, where `is_ours` of the name that it was
/// to have. What was set aside gets its name back if nothing has it. Errors: none.
void remove_temporaries(const std::string& folder,
                        const std::function<bool(std::string_view base)>& is_ours);

/// Whether two names differ in nothing but their numbers: "epoch-9.1" and "epoch-10.2".
bool are_of_one_series(std::string_view a, std::string_view b);

/// Creates a file with a temporary name for `path` and locks it, for as long as it is open.
/// Returns its descriptor and sets `name`. Errors: Error with the system's reason, naming `path`.
int create_locked(const char* operation, const std::string& path, const std::string& ending,
                  std::string& name);

/// A folder with a temporary name, locked by a file beside it.
/// Owns: both; the destructor removes what has that name then.
class TemporaryFolder {
 public:
  /// Errors: Error with the system's reason, naming `path`.
  TemporaryFolder(const char* operation, const std::string& path);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Of the folder itself, whatever has its name.
  int descriptor() const { return folder_; }
  /// Whether the name is still this folder's.
  bool is_there() const;
  /// A name for what `path` has to give way to; remove_temporaries gives it back after a crash.
  std::string aside(const std::string& path) const;

 private:
  std::string lock_path_;
  std::string path_;
  int lock_ = -1;
  int folder_ = -1;
};

/// One at a time, of all processes that have the folder: a lock on the file `path`, which exists
/// only so long. Where the file system has no locks, or the file is another user's, a warning is
/// logged and nobody is kept out.
/// Blocks: up to two minutes. Errors: DeadlineExceeded then.
class FolderLock {
 public:
  FolderLock(const char* operation, std::string path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  /// Whether the wait is over.
  bool take();
  void close();

  const char* const operation_;
  const std::string path_;
  int descriptor_ = -1;
};

}  // namespace cohort::internal::checkpoint
