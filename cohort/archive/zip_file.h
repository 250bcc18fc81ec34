// SPDX-License-Identifier: Apache-2.0
//
// Zip archives, such as Keras's .keras files.
//
//   AtomicFile file("save", "model.keras");
//   write_zip("save", file.file(), {{"config.json", text}, {"model.weights.h5", bytes.view()}});
//   file.commit();
//   FileBytes config = ZipReader("load_model", "model.keras").read("config.json");
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/archive/checked_bytes.h"
#include "cohort/archive/file_bytes.h"

namespace cohort::internal::checkpoint {
class OutputFile;
}  // namespace cohort::internal::checkpoint
namespace cohort::internal::archive {

struct ZipMember {
  std::string name;
  std::string_view bytes;  ///< Have to be there until the archive is written.
};

/// An archive of these members, stored as they are, into a file that is empty.
/// Errors: Error with the system's reason; what the file throws.
void write_zip(const char* operation, checkpoint::OutputFile& file,
               const std::vector<ZipMember>& members);

/// Threads: one at a time.
class ZipReader {
 public:
  /// Looks at the table of contents.
  /// Errors: DataLoss for what is no archive, or is damaged; more than 10,000 members; names that
  ///         lead out of a folder, that are not plain text, or that two members have, upper and
  ///         lower case being one; links and devices; encrypted members; members that are a hundred
  ///         times as large as what is stored of them. InvalidArgument for a folder, a pipe or a
  ///         device; Error with the system's reason.
  ZipReader(const char* operation, std::string path);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;
  /// Errors: DataLoss for a member that is not there, or damaged; kResourceExhausted.
  FileBytes read(const std::string& name) const;
  /// A member that is stored as it is, left where it is; null: it is packed. May outlive the
  /// reader. Errors: as read().
  std::unique_ptr<CheckedBytes> open(const std::string& name) const;

 private:
  struct Archive;
  const std::shared_ptr<Archive> archive_;
};

/// Why no archive may have such a name; empty: it may.
std::string why_bad_member_name(std::string_view name);

}  // namespace cohort::internal::archive
