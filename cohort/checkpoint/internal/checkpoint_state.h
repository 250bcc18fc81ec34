// SPDX-License-Identifier: Apache-2.0
//
// The text file `checkpoint` of a folder of checkpoints, as TensorFlow writes it: which there are,
// and which is the newest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::internal {

inline constexpr const char* kStateName = "checkpoint";

struct KeptCheckpoint {
  std::string name;      ///< Of a folder beside the file.
  double timestamp = 0;  ///< Seconds since 1970.
};

struct CheckpointState {
  std::vector<KeptCheckpoint> kept = {};  ///< Oldest first.
  double last_preserved = 0;              ///< Of what max_to_keep has passed over.
};

/// Replaces the file in one step. Errors: Error with the system's reason.
void write_state(const std::string& directory, const CheckpointState& state);

/// What the file says; where it is damaged, or missing beside checkpoints, the folders there by
/// their numbers, with a warning: those called `name` and a number, or all for none. Empty where
/// there is nothing.
CheckpointState read_state(const std::string& directory, const std::string& name);

/// The number at the end of "ckpt-12".
std::optional<int64_t> number_of(const std::string& name);

}  // namespace cohort::internal
