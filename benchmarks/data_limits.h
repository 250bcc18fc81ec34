// SPDX-License-Identifier: Apache-2.0
//
// What bounds a pipeline of data_bench: the part of its work that cannot be left out, written
// plainly, with its input in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data_contender.h"

namespace cohort::bench {

std::string read_file(const std::string& path);

/// Rows of images.u8 and labels.u8 in a shuffled order, pixels as float divided by 255, into one
/// batch's memory.
std::unique_ptr<BatchSource> make_gather_limit(const std::string& folder, std::int64_t batch);

/// The checksums of a TFRecord file's data, `batch` records a step.
std::unique_ptr<BatchSource> make_crc_limit(const std::string& file, std::int64_t batch);

/// The numbers of a CSV file, `batch` lines a step.
std::unique_ptr<BatchSource> make_from_chars_limit(const std::string& file, std::int64_t batch);

}  // namespace cohort::bench
