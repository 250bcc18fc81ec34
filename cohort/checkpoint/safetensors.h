// SPDX-License-Identifier: Apache-2.0
//
// Files of named tensors in the safetensors format, which most tools of the field open.
//
//   save_tensors("mlp.safetensors", {{"dense/kernel", kernel}}, {{"format", "cohort"}});
//   TensorFile file = load_tensors("mlp.safetensors");
//
// Layout: eight bytes with the header's length (little-endian), a JSON header that says dtype,
// shape and offset of every tensor, the raw little-endian data without gaps. Data only: nothing in
// a file is executed, and nothing is allocated before its size was checked against the file's.
// The metadata keeps a CRC-32C of every tensor and one of what the header says; files of other
// tools have none.
#pragma once

#include <map>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort {

/// The contents of a file of tensors.
struct TensorFile {
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, std::string> metadata = {};  ///< Free text by key.
};

/// Writes all tensors to `path`; the file is complete under its name or not there at all: it is
/// written under a temporary name in the same folder, flushed to the disk, and renamed.
/// Removes temporary files that killed processes left of this path, or of one with other digits.
/// Errors: InvalidArgument for an undefined tensor, a dtype that the format lacks, the name
///         "__metadata__", metadata "cohort.crc32c..." or text that is not UTF-8; Error with the
///         system's reason if the file cannot be written (an older file then stays as it is).
/// Threads: thread-safe; of several writers of one path the last one wins.
void save_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

/// Reads a whole file into fresh tensors on the CPU.
/// Errors: DataLoss with the file and the byte where it is damaged (cut off, gaps, overlaps, wrong
///         sizes, bad JSON, checksums that differ); InvalidArgument for a folder, a pipe or a
///         device; Error of kNotFound and others if it cannot be opened, kResourceExhausted.
TensorFile load_tensors(const std::string& path);

}  // namespace cohort
