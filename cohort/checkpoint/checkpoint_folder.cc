// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/failpoint.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/tensor_writer.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderSave = "checkpoint.save";
constexpr int kMostReplacements = 1000;  // by others, while this one is at it

std::string shard_name(int writer, int writers) {
  char text[64];
  std::snprintf(text, sizeof text, "shard-%05d-model-00001-of-%05d.safetensors", writer + 1,
                writers);
  return text;
}

// As PyTorch's reader of sharded safetensors wants it: where in its tensor every piece begins.
std::map<std::string, std::string> sharding_info(const std::map<std::string, Tensor>& tensors) {
  nlohmann::json info = nlohmann::json::object();
  for (const auto& [name, tensor] : tensors) {
    info[name] = {{"saved_offsets", std::vector<int64_t>(static_cast<std::size_t>(tensor.dim()))}};
  }
  try {
    return {{"DCP_SHARDING_INFO", info.dump()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument(str_cat("[", kFolderSave, "] expected names in UTF-8: ", e.what()));
  }
}

// That reader takes an unknown type for another one, and booleans are unknown to it.
Tensor as_stored(const Tensor& tensor) {
  return tensor.scalar_type() == kBool ? tensor.to(kUint8) : tensor;
}

Manifest manifest_of(const SavedValues& values, const WrittenTensors& written,
                     const ManifestFile& shard) {
  Manifest manifest;
  manifest.files.push_back(shard);
  for (const auto& [path, tensor] : values.tensors) {
    const WrittenTensor& place = written.tensors.at(path);
    const Shape shape = shape_of(tensor);
    manifest.values[path] = {tensor.scalar_type(),
                             shape,
                             {{.offset = place.offset,
                               .bytes = place.bytes,
                               .crc32c = place.crc32c,
                               .starts = Shape(shape.size()),
                               .sizes = shape}}};
  }
  manifest.aliases = values.aliases;
  manifest.unfinished = values.unfinished;
  manifest.intra_op_threads = noted_replica_threads();
  return manifest;
}

bool exists(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

// The error of rename with these flags; 0: done.
int rename_with(unsigned flags, const std::string& from, const std::string& to) {
  const int error = fault("renameat2", to);
  if (error != 0) return error;
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

bool knows_plain_renames_only(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

// A folder that holds something is never replaced by a plain rename.
bool is_taken(int error) {
  return error == EEXIST || error == ENOTEMPTY || error == ENOTDIR || error == EISDIR;
}

std::string with_folder(const std::string& path) {
  make_folders(kFolderSave, folder_of(path));
  return path;
}

}  // namespace

NewCheckpoint::NewCheckpoint(const std::string& path)
    : path_(with_folder(path)), folder_(kFolderSave, path) {}

void NewCheckpoint::write(const SavedValues& values) {
  failpoint("checkpoint.made");
  std::map<std::string, Tensor> stored;
  for (const auto& [name, tensor] : values.tensors) stored[name] = as_stored(tensor);
  shard_.name = shard_name(0, 1);
  WrittenTensors written;
  {
    OutputFile file(kFolderSave, folder_.path() + "/" + shard_.name, path_ + "/" + shard_.name);
    written = write_tensors(file, stored, sharding_info(stored));
    failpoint("checkpoint.shard_written");
    file.flush();
  }
  shard_.bytes = written.bytes;
  shard_.header_bytes = written.header_bytes;
  shard_.header_crc32c = written.header_crc32c;
  // Last, so that a folder with it is whole.
  const std::string text = manifest_text(manifest_of(values, written, shard_));
  COHORT_CHECK_ARG(text.size() <= kLargestManifest, "[", kFolderSave, "] ", path_,
                   ": expected at most ", kLargestManifest, " bytes of names and shapes, got ",
                   text.size());
  OutputFile file(kFolderSave, folder_.path() + "/" + kManifestName, path_ + "/" + kManifestName);
  file.write(text.data(), text.size());
  file.flush();
  manifest_bytes_ = text.size();
  failpoint("checkpoint.manifest_written");
  flush_folder(kFolderSave, folder_.path());
  failpoint("checkpoint.flushed");
}

// Whatever else clears up the folder may have met this one.
void NewCheckpoint::check_whole() const {
  const auto has = [&](const std::string& name, uint64_t bytes) {
    struct stat status = {};
    return ::fstatat(folder_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == bytes;
  };
  if (folder_.is_there() && has(kManifestName, manifest_bytes_) && has(shard_.name, shard_.bytes)) {
    return;
  }
  throw Error(
      ErrorCode::kAborted,
      str_cat("[", kFolderSave, "] ", path_, ": expected what was written to ", folder_.path(),
              " to be there still, got less: another program has removed it. Save again"));
}

bool NewCheckpoint::rename_to_free(const std::string& path) {
  int error = rename_with(RENAME_NOREPLACE, folder_.path(), path);
  if (knows_plain_renames_only(error)) {
    if (exists(path)) return false;
    error = ::rename(folder_.path().c_str(), path.c_str()) == 0 ? 0 : errno;
  }
  if (is_taken(error)) return false;
  if (error != 0) throw_system(kFolderSave, path, error);
  return true;
}

bool NewCheckpoint::replace(const std::string& path) {
  if (!is_checkpoint(path)) {
    if (!exists(path)) return false;  // gone in between
    throw Error(ErrorCode::kAlreadyExists,
                str_cat("[", kFolderSave, "] expected a path that is free or a checkpoint's, got ",
                        path, ", which is something else"));
  }
  int error = rename_with(RENAME_EXCHANGE, folder_.path(), path);
  if (error == 0) return true;  // the destructor removes the old one
  if (error == ENOENT) return false;
  if (!knows_plain_renames_only(error)) throw_system(kFolderSave, path, error);
  // Between these two nothing has the name; what clears up after a crash gives it back.
  const std::string aside = folder_.aside(path);
  error = ::rename(path.c_str(), aside.c_str()) == 0 ? 0 : errno;
  if (error == ENOENT) return false;
  if (error != 0) throw_system(kFolderSave, path, error);
  failpoint("checkpoint.set_aside");
  bool done = false;
  try {
    done = rename_to_free(path);
  } catch (...) {
    ::rename(aside.c_str(), path.c_str());
    throw;
  }
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  return done;
}

bool NewCheckpoint::publish(const std::string& path, IfTaken if_taken) {
  check_whole();
  for (int i = 0; !rename_to_free(path); ++i) {
    if (if_taken == IfTaken::kRefuse) return false;
    if (replace(path)) break;
    if (i == kMostReplacements) throw_system(kFolderSave, path, EBUSY);
  }
  failpoint("checkpoint.renamed");
  flush_folder(kFolderSave, folder_of(path));
  return true;
}

void write_checkpoint(const std::string& path, const SavedValues& values) {
  const std::string own = fs::path(path).filename().string();
  remove_temporaries(folder_of(path),
                     [&](std::string_view base) { return are_of_one_series(base, own); });
  NewCheckpoint checkpoint(path);
  checkpoint.write(values);
  checkpoint.publish(path, NewCheckpoint::IfTaken::kReplace);
}

std::optional<CheckpointId> checkpoint_id(const std::string& path) {
  struct stat status = {};
  const std::string manifest = path + "/" + kManifestName;
  if (::lstat(manifest.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return CheckpointId{status.st_dev, status.st_ino,
                      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

bool is_checkpoint(const std::string& path) { return checkpoint_id(path).has_value(); }

std::string take_name(const std::string& path) {
  if (!is_checkpoint(path)) return "";
  std::string aside = temporary_path(path);
  if (::rename(path.c_str(), aside.c_str()) != 0) return "";
  failpoint("checkpoint.renamed_to_remove");
  return aside;
}

}  // namespace cohort::internal
