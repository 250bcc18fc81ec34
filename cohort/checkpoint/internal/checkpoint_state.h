// SPDX-License-Identifier: Apache-2.0
//
// The text file `checkpoint` of a folder of checkpoints, as TensorFlow writes it: which there are,
// and which is the newest. Managers of several names share it, and each minds its own name's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/checkpoint/internal/checkpoint_folder.h"

namespace cohort::internal::checkpoint {

inline constexpr const char* kStateName = "checkpoint";

struct KeptCheckpoint {
  std::string name;      ///< Of a folder beside the file.
  double timestamp = 0;  ///< Seconds since 1970.
};

struct CheckpointState {
  std::vector<KeptCheckpoint> kept = {};  ///< Oldest first; of all names.
  /// When the last one was saved that max_to_keep passed over, by checkpoint_name.
  std::map<std::string, double> last_preserved = {};
};

/// Replaces the file in one step. Errors: Error with the system's reason.
void write_state(const std::string& directory, const CheckpointState& state);

/// What the file says. Where it is damaged, missing beside checkpoints, or has none of `name`, the
/// folders there by their numbers, with a warning: those called `name` and a number, or all for no
/// name. Empty where there is nothing.
CheckpointState read_state(const std::string& directory, const std::string& name);

/// Those of exactly this name and a number; all for no name. "ckpt-1-2" is not one of "ckpt".
std::vector<KeptCheckpoint> kept_of(const CheckpointState& state, std::string_view name);

/// The name and the number of "ckpt-12"; the name is all of it if there is no number.
std::string_view name_of(std::string_view folder);
std::optional<int64_t> number_of(std::string_view folder);
/// Whether it is `name`, a dash and a number.
bool is_numbered(std::string_view folder, std::string_view name);

/// The greatest number of such folders that are checkpoints or are being written; 0: there are
/// none.
int64_t greatest_number(const std::string& directory, const std::string& name);

/// The checkpoints of this name and a number.
std::map<std::string, CheckpointId> checkpoints_in(const std::string& directory,
                                                   const std::string& name);

}  // namespace cohort::internal::checkpoint
