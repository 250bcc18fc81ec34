// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/several_writers.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/base/write_guard.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/worker_values.h"

namespace cohort::internal::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFailed = "failed";

// The name is random, of nobody else, and was never asked for before: whoever finds it has the
// chief's disk. Empty: it is not here, or cannot be written to.
std::string find_folder(const std::string& made, const std::string& folder) {
  for (const std::string& path : {made, str_cat(folder, "/", fs::path(made).filename().string())}) {
    std::error_code ignored;
    const bool is_here =
        base::fault("find", path) == 0 && fs::is_directory(fs::symlink_status(path, ignored));
    if (is_here && ::access(path.c_str(), W_OK | X_OK) == 0) return path;
  }
  return {};
}

void say_who_has_no_folder(const std::vector<std::string>& found, const std::string& made) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const auto first = std::find(found.begin(), found.end(), std::string());
  COHORT_LOG(kInfo, "[checkpoint.save] worker ", first - found.begin(), " finds no folder ",
             folder_of(made),
             " that is this one's, or cannot write there: the chief gathers what workers have "
             "spread, and writes all. Where all see it, each writes its own part");
}

// Where this process finds the chief's folder; empty on all: one of them does not.
std::string find_on_all(SavingGroup* group, const NewCheckpoint* made, const std::string& folder) {
  std::error_code ignored;
  const std::string there = from_chief(
      group, made == nullptr ? std::string() : fs::absolute(made->folder(), ignored).string());
  const std::string here = made != nullptr ? made->folder() : find_folder(there, folder);
  const std::vector<std::string> found = group->gather(here);
  if (std::find(found.begin(), found.end(), std::string()) == found.end()) return here;
  if (made != nullptr) say_who_has_no_folder(found, made->folder());
  return {};
}

// The chief's own besides what all have in common.
SavedValues values_of(const SavingGroup& group, SavedValues& values) {
  SavedValues mine;
  if (group.rank() == 0) {
    mine.tensors = std::move(values.tensors);
    mine.pieces = std::move(values.pieces);
  }
  for (const auto& [path, value] : values.spread) {
    SavedPieces here{value.dtype, *value.shape, {}};
    for (const TrackedPiece& piece : value.pieces) {
      if (piece.read == nullptr) continue;
      here.pieces.push_back(
          {piece.offset, read_checked(path, value.dtype, piece.extent, piece.read)});
    }
    if (!here.pieces.empty()) mine.pieces[path] = std::move(here);
  }
  return mine;
}

FileNumbers numbers_of(SavingGroup& group, std::size_t count) {
  const std::vector<std::string> counts = group.gather(std::to_string(count));
  FileNumbers out;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::size_t files = std::stoul(counts[rank]);
    if (rank < static_cast<std::size_t>(group.rank())) out.first += files;
    out.total += files;
  }
  return out;
}

void write_parts(SavingGroup& group, NewCheckpoint* made, const std::string& here,
                 SavedValues& values) {
  const SavedValues mine = values_of(group, values);
  const FileNumbers numbers = numbers_of(group, file_count(mine));
  if (made == nullptr) base::check_may_write();  // the chief asks before the rename
  Manifest part;
  std::exception_ptr error;
  try {
    const std::string named = base_of_temporary(fs::path(here).filename().string());
    part = write_files(here, str_cat(folder_of(here), "/", named), mine, numbers);
  } catch (...) {
    error = std::current_exception();
  }
  // Who fails says so when all have ended: the chief, which throws too, then removes the folder.
  const std::vector<std::string> texts = group.gather(error != nullptr  ? std::string(kFailed)
                                                      : made != nullptr ? std::string()
                                                                        : manifest_text(part));
  if (error != nullptr) std::rethrow_exception(error);
  if (std::find(texts.begin(), texts.end(), kFailed) != texts.end()) {
    group.gather({});  // ends by what the one that failed throws
  }
  if (made == nullptr) return;
  std::vector<Manifest> parts = {std::move(part)};
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    parts.push_back(parse_part(texts[rank], str_cat("files of worker ", rank)));
  }
  made->finish(values, std::move(parts));
}

}  // namespace

void gather_spread(SavedValues& values) {
  for (const auto& [path, value] : std::exchange(values.spread, {})) {
    values.tensors[path] = read_checked(path, value.dtype, value.shape, value.read);
  }
}

void write_together(SavingGroup* group, NewCheckpoint* made, const std::string& folder,
                    SavedValues& values) {
  if (!values.spread.empty()) {
    if (const std::string here = find_on_all(group, made, folder); !here.empty()) {
      return write_parts(*group, made, here, values);
    }
    gather_spread(values);
  }
  if (made != nullptr) made->write(values);
}

}  // namespace cohort::internal::checkpoint
