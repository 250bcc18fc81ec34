// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint on the disk: a folder with one safetensors file per writer, and cohort.json. The
// files carry what PyTorch's distributed checkpoints expect of sharded safetensors, so that other
// tools open them, too.
#pragma once

#include <string>

#include "cohort/checkpoint/internal/saved_values.h"

namespace cohort::internal {

/// Writes a folder beside `path`, flushes it, and gives it the name; a checkpoint that has the name
/// is replaced in one step. Makes the folders above.
/// Errors: Error kAlreadyExists if something else has the name; Error with the system's reason;
///         InvalidArgument as save_tensors. An older checkpoint is then as it was.
void write_checkpoint(const std::string& path, const SavedValues& values);

/// Reads and checks all of it.
/// Errors: DataLoss with file and byte; Error of kNotFound and others if it cannot be opened.
SavedValues read_checkpoint(const std::string& path);

/// Whether `path` is a folder with a table of contents.
bool is_checkpoint(const std::string& path);
/// Takes its name away first, so that nobody reads half of it. Does nothing if it is no checkpoint.
void remove_checkpoint(const std::string& path);

}  // namespace cohort::internal
