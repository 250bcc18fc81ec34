// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/failpoint.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/tensor_writer.h"

namespace cohort::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSave = "checkpoint.save";
constexpr const char* kRestore = "checkpoint.restore";

/// A folder that has its name only after publish(). The destructor removes what is left.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path) : path_(path), temporary_(temporary_name(path)) {
    std::error_code error;
    fs::create_directories(folder_of(path), error);
    if (error) throw_system(kSave, folder_of(path), error.value());
    if (::mkdir(temporary_.c_str(), 0777) != 0) throw_system(kSave, path, errno);
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string file(const std::string& name) const { return temporary_ + "/" + name; }

  void publish() {
    flush_folder(temporary_);
    failpoint("checkpoint.flushed");
    // Never over anything: whoever has the name is looked at first.
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
      const int error = errno;
      if (error == EINVAL && !exists()) {
        rename(temporary_, path_);  // a file system that knows plain renames only
      } else if (error == EEXIST || error == EINVAL) {
        replace();
      } else {
        throw_system(kSave, path_, error);
      }
    }
    failpoint("checkpoint.renamed");
    flush_folder(folder_of(path_));
  }

 private:
  bool exists() const {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path_, ignored));
  }

  static void rename(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) throw_system(kSave, to, errno);
  }

  void replace() {
    if (!is_checkpoint(path_)) {
      throw Error(ErrorCode::kAlreadyExists,
                  str_cat("[", kSave, "] expected a path that is free or a checkpoint's, got ",
                          path_, ", which is something else"));
    }
    const int done =
        ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE);
    if (done == 0) return;  // the destructor removes the old one
    // Between these two nothing has the name; the old checkpoint keeps its temporary one.
    const std::string aside = temporary_name(path_);
    rename(path_, aside);
    rename(temporary_, path_);
    std::error_code ignored;
    fs::remove_all(aside, ignored);
  }

  const std::string path_;
  const std::string temporary_;
};

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
    throw InvalidArgument(str_cat("[", kSave, "] expected names in UTF-8: ", e.what()));
  }
}

// That reader takes an unknown type for another one, and booleans are unknown to it.
Tensor as_stored(const Tensor& tensor) {
  return tensor.scalar_type() == kBool ? tensor.to(kUint8) : tensor;
}

void write_text(const std::string& path, const std::string& shown, const std::string& text) {
  OutputFile file(kSave, path, shown);
  file.write(text.data(), text.size());
  file.flush();
}

/// Reads pieces, each file opened once.
class Pieces {
 public:
  Pieces(const std::string& folder, const Manifest& manifest) {
    for (const ManifestFile& file : manifest.files) {
      files_.push_back(std::make_unique<InputFile>(kRestore, folder + "/" + file.name));
      check(file, *files_.back());
    }
  }

  Tensor read(const std::string& path, const ManifestValue& value) const {
    Tensor whole = empty(value.shape, value.dtype);
    for (const ManifestPiece& piece : value.pieces) {
      if (piece.sizes == value.shape) {
        read_into(path, piece, whole);
        continue;
      }
      const Tensor part = empty(piece.sizes, value.dtype);
      read_into(path, piece, part);
      Tensor place = whole;
      for (std::size_t i = 0; i < piece.sizes.size(); ++i) {
        place = place.narrow(static_cast<int64_t>(i), piece.starts[i], piece.sizes[i]);
      }
      place.copy_(part);
    }
    return whole;
  }

 private:
  [[noreturn]] static void damaged(const InputFile& file, uint64_t byte, uint64_t bytes,
                                   const std::string& what) {
    throw DataLoss(str_cat("[", kRestore, "] ", file.path(), ": at byte ", byte, ": the ", bytes,
                           " bytes from here on (", what,
                           ") are not those that were written: their checksum differs"));
  }

  static void check(const ManifestFile& expected, const InputFile& file) {
    if (file.size() != expected.bytes) {
      throw DataLoss(str_cat("[", kRestore, "] ", file.path(), ": at byte ",
                             std::min(file.size(), expected.bytes), ": expected a file of ",
                             expected.bytes, " bytes, got ", file.size()));
    }
    std::string header(static_cast<std::size_t>(expected.header_bytes), '\0');
    file.read(0, header.data(), header.size());
    if (crc32c(header) != expected.header_crc32c) damaged(file, 0, header.size(), "header");
  }

  void read_into(const std::string& path, const ManifestPiece& piece, const Tensor& out) const {
    const InputFile& file = *files_[piece.file];
    void* data = out.mutable_data_ptr();
    file.read(piece.offset, data, out.nbytes());
    if (crc32c({static_cast<const char*>(data), out.nbytes()}) != piece.crc32c) {
      damaged(file, piece.offset, piece.bytes, path);
    }
  }

  std::vector<std::unique_ptr<InputFile>> files_;
};

Manifest manifest_of(const SavedValues& values, const WrittenTensors& written,
                     const std::string& shard) {
  Manifest manifest;
  manifest.files.push_back({shard, written.bytes, written.header_bytes, written.header_crc32c});
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
  return manifest;
}

}  // namespace

void write_checkpoint(const std::string& path, const SavedValues& values) {
  std::map<std::string, Tensor> stored;
  for (const auto& [name, tensor] : values.tensors) stored[name] = as_stored(tensor);
  NewFolder folder(path);
  failpoint("checkpoint.made");
  const std::string shard = shard_name(0, 1);
  WrittenTensors written;
  {
    OutputFile file(kSave, folder.file(shard), path + "/" + shard);
    written = write_tensors(file, stored, sharding_info(stored));
    failpoint("checkpoint.shard_written");
    file.flush();
  }
  // Last, so that a folder with it is whole.
  write_text(folder.file(kManifestName), path + "/" + kManifestName,
             manifest_text(manifest_of(values, written, shard)));
  failpoint("checkpoint.manifest_written");
  folder.publish();
}

SavedValues read_checkpoint(const std::string& path) {
  const InputFile file(kRestore, path + "/" + kManifestName);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  const Manifest manifest = parse_manifest(text, file.path());
  const Pieces pieces(path, manifest);
  SavedValues out;
  for (const auto& [name, value] : manifest.values) {
    out.tensors.emplace(name, pieces.read(name, value));
  }
  out.aliases = manifest.aliases;
  out.unfinished = manifest.unfinished;
  return out;
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path + "/" + kManifestName, ignored);
}

void remove_checkpoint(const std::string& path) {
  if (!is_checkpoint(path)) return;
  const std::string aside = temporary_name(path);
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  failpoint("checkpoint.renamed_to_remove");
  std::error_code ignored;
  fs::remove_all(aside, ignored);
}

}  // namespace cohort::internal
