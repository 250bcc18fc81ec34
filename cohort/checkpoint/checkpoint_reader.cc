// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/tensor_reader.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::internal::checkpoint {
namespace {

constexpr const char* kRestore = "checkpoint.restore";
/// Of a checkpoint that many workers wrote, whose files are more than a process may have open.
constexpr std::size_t kMostOpen = 64;

/// Reads pieces; the first kMostOpen files stay open, and each other one is opened for each piece.
class Pieces {
 public:
  Pieces(const InputFolder& folder, const Manifest& manifest)
      : folder_(folder), manifest_(manifest) {
    for (const ManifestFile& file : manifest.files) {
      auto opened = std::make_unique<InputFile>(folder, file.name);
      check(file, *opened);
      modified_ = std::max(modified_, opened->modified());
      if (open_.size() < kMostOpen) open_.push_back(std::move(opened));
    }
  }

  Tensor read(const std::string& path, const ManifestValue& value) const {
    if (value.pieces.empty()) return empty(value.shape, value.dtype);
    Tensor whole = room(path, value.shape, value.dtype);
    for (const ManifestPiece& piece : value.pieces) {
      if (piece.sizes == value.shape) {
        read_into(path, piece, whole);
        continue;
      }
      const Tensor part = room(path, piece.sizes, value.dtype);
      read_into(path, piece, part);
      Tensor place = whole;
      for (std::size_t i = 0; i < piece.sizes.size(); ++i) {
        place = place.narrow(static_cast<int64_t>(i), piece.starts[i], piece.sizes[i]);
      }
      place.copy_(part);
    }
    return whole;
  }

  /// The last change of a file, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }

 private:
  Tensor room(const std::string& path, const Shape& shape, DType dtype) const {
    return room_for(kRestore, folder_.path(), path, shape, dtype);
  }

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
    if (base::crc32c(header) != expected.header_crc32c) damaged(file, 0, header.size(), "header");
  }

  void read_into(const std::string& path, const ManifestPiece& piece, const Tensor& out) const {
    if (piece.file < open_.size()) return read_into(path, piece, out, *open_[piece.file]);
    read_into(path, piece, out, InputFile(folder_, manifest_.files[piece.file].name));
  }

  static void read_into(const std::string& path, const ManifestPiece& piece, const Tensor& out,
                        const InputFile& file) {
    void* data = out.mutable_data_ptr();
    file.read(piece.offset, data, out.nbytes());
    if (base::crc32c({static_cast<const char*>(data), out.nbytes()}) != piece.crc32c) {
      damaged(file, piece.offset, piece.bytes, path);
    }
  }

  const InputFolder& folder_;
  const Manifest& manifest_;
  std::vector<std::unique_ptr<InputFile>> open_;
  int64_t modified_ = 0;
};

/// An opened checkpoint, its table of contents checked, and the sizes and headers of its files.
class OpenCheckpoint {
 public:
  explicit OpenCheckpoint(const std::string& path)
      : folder_(kRestore, path),
        file_(folder_, kManifestName),
        manifest_(parse_manifest(file_.read_all(kLargestManifest), file_.path())),
        pieces_(folder_, manifest_) {}

  const Manifest& manifest() const { return manifest_; }
  Tensor read(const std::string& name, const ManifestValue& value) const {
    return pieces_.read(name, value);
  }
  /// The last change of the files of tensors.
  int64_t modified() const { return pieces_.modified(); }
  /// The table of contents is what is written last.
  bool was_changed() const { return modified() >= file_.modified(); }

 private:
  const InputFolder folder_;
  const InputFile file_;
  const Manifest manifest_;
  const Pieces pieces_;
};

// Sums over many elements may be added in another order with another number of threads.
void warn_of_other_threads(const Manifest& manifest, const std::string& path) {
  const int here = runtime::noted_replica_threads();
  const int there = manifest.intra_op_threads;
  if (here == 0 || there == 0 || here == there) return;
  COHORT_LOG(kWarning, "[checkpoint.restore] ", path, " was written by replicas with ", there,
             " intra-op threads each, these have ", here,
             ": what is trained from here on may differ in its last bits; give the strategy "
             ".intra_op_threads = ",
             there, " for the same ones");
}

}  // namespace

Tensor room_for(const char* operation, const std::string& from, const std::string& name,
                const Shape& shape, DType dtype) {
  try {
    return empty(shape, dtype);
  } catch (const std::exception&) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[", operation, "] ", from, ": no memory for \"", name, "\", ",
                        dtype_name(dtype), bracketed(shape)));
  }
}

SavedValues read_checkpoint(const std::string& path, bool for_all) {
  const OpenCheckpoint checkpoint(path);
  if (for_all) warn_of_other_threads(checkpoint.manifest(), path);
  SavedValues out;
  for (const auto& [name, value] : checkpoint.manifest().values) {
    out.tensors.emplace(name, checkpoint.read(name, value));
  }
  out.aliases = checkpoint.manifest().aliases;
  out.unfinished = checkpoint.manifest().unfinished;
  return out;
}

std::string damage_of(const std::string& path, int64_t& read) {
  try {
    const OpenCheckpoint checkpoint(path);
    if (!checkpoint.was_changed() || checkpoint.modified() == read) return "";
    for (const auto& [name, value] : checkpoint.manifest().values) checkpoint.read(name, value);
    read = checkpoint.modified();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace cohort::internal::checkpoint
