// SPDX-License-Identifier: Apache-2.0
//
// The table of contents of a checkpoint, its file cohort.json: every value with its type and
// shape, and the pieces it lies in. A piece is a box of the value in one file, so that several
// writers can each keep a part, and any number of readers can fetch what they need.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

inline constexpr const char* kManifestName = "cohort.json";
inline constexpr uint64_t kLargestManifest = uint64_t{1} << 28;  // some two million values

struct ManifestFile {
  std::string name;  ///< Within the checkpoint's folder.
  uint64_t bytes = 0;
  uint64_t header_bytes = 0;
  uint32_t header_crc32c = 0;
};

struct ManifestPiece {
  std::size_t file = 0;  ///< Index into files.
  uint64_t offset = 0;   ///< In the file.
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  Shape starts = {};  ///< Of the box in the value.
  Shape sizes = {};
};

struct ManifestValue {
  DType dtype = kFloat32;
  Shape shape = {};
  std::vector<ManifestPiece> pieces = {};
};

struct Manifest {
  std::vector<ManifestFile> files = {};
  std::map<std::string, ManifestValue> values = {};
  std::map<std::string, std::string> aliases = {};  ///< Further names of values.
  std::set<std::string> unfinished = {};            ///< As SavedValues.
  int intra_op_threads = 0;                         ///< Of the writer's replicas; 0: not known.
};

/// True if the pieces fill a value of this shape, each place once.
bool do_fill(const Shape& shape, const std::vector<ManifestPiece>& pieces);

/// The file's whole text. Errors: InvalidArgument for names that are not UTF-8.
std::string manifest_text(const Manifest& manifest);

/// Errors: DataLoss with file and byte, if the text is not as it was written or contradicts itself;
///         Unimplemented for a later version's.
Manifest parse_manifest(const std::string& text, const std::string& path);
/// The same of what one of several writers says of its own files: pieces need not fill values.
Manifest parse_part(const std::string& text, const std::string& writer);

}  // namespace cohort::internal::checkpoint
