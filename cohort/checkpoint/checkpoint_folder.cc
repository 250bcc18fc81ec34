// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/write_guard.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/tensor_writer.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::internal::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderSave = "checkpoint.save";
constexpr int kMostReplacements = 1000;  // by others, while this one is at it

std::string shard_name(std::size_t shard, std::size_t shards) {
  char text[80];
  std::snprintf(text, sizeof text, "shard-%05zu-model-00001-of-%05zu.safetensors", shard + 1,
                shards);
  return text;
}

// That reader takes an unknown type for another one, and booleans are unknown to it.
Tensor as_stored(const Tensor& tensor) {
  return tensor.scalar_type() == kBool ? tensor.to(kUint8) : tensor;
}

/// What one file holds: of a value in pieces at most one, so that all have the value's name.
struct Shard {
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, Shape> offsets = {};

  void add(const std::string& name, const Tensor& tensor, const Shape& offset) {
    tensors.emplace(name, as_stored(tensor));
    offsets.emplace(name, offset);
  }
};

std::vector<Shard> shards_of(const SavedValues& values) {
  std::vector<Shard> shards(file_count(values));
  for (const auto& [name, tensor] : values.tensors) {
    shards[0].add(name, tensor, Shape(static_cast<std::size_t>(tensor.dim())));
  }
  for (const auto& [name, value] : values.pieces) {
    for (std::size_t i = 0; i < value.pieces.size(); ++i) {
      shards[i].add(name, value.pieces[i].tensor, value.pieces[i].offset);
    }
  }
  return shards;
}

// As PyTorch's reader of sharded safetensors wants it: where in its tensor every piece begins.
std::map<std::string, std::string> sharding_info(const Shard& shard) {
  nlohmann::json info = nlohmann::json::object();
  for (const auto& [name, offset] : shard.offsets) info[name] = {{"saved_offsets", offset}};
  try {
    return {{"DCP_SHARDING_INFO", info.dump()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument(str_cat("[", kFolderSave, "] expected names in UTF-8: ", e.what()));
  }
}

ManifestPiece piece_of(const WrittenTensor& place, std::size_t file, const Tensor& tensor,
                       const Shape& offset) {
  return {.file = file,
          .offset = place.offset,
          .bytes = place.bytes,
          .crc32c = place.crc32c,
          .starts = offset,
          .sizes = shape_of(tensor)};
}

Manifest part_of(const SavedValues& values, const std::vector<WrittenTensors>& written) {
  Manifest part;
  for (const auto& [path, tensor] : values.tensors) {
    const Shape shape = shape_of(tensor);
    part.values[path] = {tensor.scalar_type(),
                         shape,
                         {piece_of(written[0].tensors.at(path), 0, tensor, Shape(shape.size()))}};
  }
  for (const auto& [path, value] : values.pieces) {
    ManifestValue& out = part.values[path];
    out = {value.dtype, value.shape, {}};
    for (std::size_t i = 0; i < value.pieces.size(); ++i) {
      const auto& [offset, tensor] = value.pieces[i];
      out.pieces.push_back(piece_of(written[i].tensors.at(path), i, tensor, offset));
    }
  }
  return part;
}

void check_filled(const Manifest& manifest) {
  for (const auto& [path, value] : manifest.values) {
    COHORT_CHECK(do_fill(value.shape, value.pieces), "[", kFolderSave, "] the pieces of \"", path,
                 "\" that writers have written do not fill ", bracketed(value.shape));
  }
}

Manifest joined(std::vector<Manifest> parts) {
  Manifest out;
  for (Manifest& part : parts) {
    const std::size_t before = out.files.size();
    std::move(part.files.begin(), part.files.end(), std::back_inserter(out.files));
    for (auto& [path, value] : part.values) {
      for (ManifestPiece& piece : value.pieces) piece.file += before;
      const auto [known, is_new] = out.values.try_emplace(path, std::move(value));
      if (is_new) continue;
      std::move(value.pieces.begin(), value.pieces.end(), std::back_inserter(known->second.pieces));
    }
  }
  if (parts.size() > 1) check_filled(out);
  return out;
}

bool exists(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

// The error of rename with these flags; 0: done.
int rename_with(unsigned flags, const std::string& from, const std::string& to) {
  const int error = base::fault("renameat2", to);
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

std::size_t file_count(const SavedValues& values) {
  std::size_t count = values.tensors.empty() ? 0 : 1;
  for (const auto& [name, value] : values.pieces) count = std::max(count, value.pieces.size());
  return count;
}

Manifest write_files(const std::string& folder, const std::string& path, const SavedValues& values,
                     FileNumbers numbers) {
  base::failpoint("checkpoint.made");
  const std::vector<Shard> shards = shards_of(values);
  std::vector<WrittenTensors> written;
  std::vector<ManifestFile> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(numbers.first + i, numbers.total);
    OutputFile file(kFolderSave, folder + "/" + name, path + "/" + name);
    written.push_back(write_tensors(file, shards[i].tensors, sharding_info(shards[i])));
    base::failpoint("checkpoint.shard_written");
    file.flush();
    files.push_back({.name = name,
                     .bytes = written.back().bytes,
                     .header_bytes = written.back().header_bytes,
                     .header_crc32c = written.back().header_crc32c});
  }
  Manifest part = part_of(values, written);
  part.files = std::move(files);
  return part;
}

void NewCheckpoint::write(const SavedValues& values) {
  std::vector<Manifest> parts;
  parts.push_back(write_files(folder_.path(), path_, values, {.total = file_count(values)}));
  finish(values, std::move(parts));
}

// Last, so that a folder with it is whole.
void NewCheckpoint::finish(const SavedValues& values, std::vector<Manifest> parts) {
  Manifest manifest = joined(std::move(parts));
  manifest.aliases = values.aliases;
  manifest.unfinished = values.unfinished;
  manifest.intra_op_threads = runtime::noted_replica_threads();
  const std::string text = manifest_text(manifest);
  COHORT_CHECK_ARG(text.size() <= kLargestManifest, "[", kFolderSave, "] ", path_,
                   ": expected at most ", kLargestManifest, " bytes of names and shapes, got ",
                   text.size());
  OutputFile file(kFolderSave, folder_.path() + "/" + kManifestName, path_ + "/" + kManifestName);
  file.write(text.data(), text.size());
  file.flush();
  files_ = std::move(manifest.files);
  manifest_bytes_ = text.size();
  base::failpoint("checkpoint.manifest_written");
  flush_folder(kFolderSave, folder_.path());
  base::failpoint("checkpoint.flushed");
}

// Whatever else clears up the folder may have met this one.
void NewCheckpoint::check_whole() const {
  const auto has = [&](const std::string& name, uint64_t bytes) {
    struct stat status = {};
    return ::fstatat(folder_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == bytes;
  };
  const bool has_all = std::all_of(files_.begin(), files_.end(), [&](const ManifestFile& file) {
    return has(file.name, file.bytes);
  });
  if (folder_.is_there() && has(kManifestName, manifest_bytes_) && has_all) return;
  throw Error(
      ErrorCode::kAborted,
      str_cat("[", kFolderSave, "] ", path_, ": expected what was written to ", folder_.path(),
              " to be there still, got less: another program has removed it. Save again"));
}

bool NewCheckpoint::rename_to_free(const std::string& path) {
  base::check_may_write();
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
  base::check_may_write();
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
  base::failpoint("checkpoint.set_aside");
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
  base::failpoint("checkpoint.renamed");
  flush_folder(kFolderSave, folder_of(path));
  return true;
}

void remove_leftovers(const std::string& path) {
  const std::string own = fs::path(path).filename().string();
  remove_temporaries(folder_of(path),
                     [&](std::string_view base) { return are_of_one_series(base, own); });
}

void write_checkpoint(const std::string& path, const SavedValues& values) {
  remove_leftovers(path);
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
  base::failpoint("checkpoint.renamed_to_remove");
  return aside;
}

}  // namespace cohort::internal::checkpoint
