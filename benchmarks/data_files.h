// SPDX-License-Identifier: Apache-2.0
//
// What data_bench reads: the same files for every contender, all of fixed contents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::bench {

inline constexpr std::int64_t kImageBytes = 784;
inline constexpr int kColumns = 10;    ///< Of the table and of the examples with floats.
inline constexpr int kManyFiles = 64;  ///< Of the cases that interleave.

/// Writes the files of a case of data_bench into `folder`. `images` is where Fashion-MNIST is.
///   rows              images.u8, labels.u8: 60,000 rows of 784 bytes, one byte each
///   examples_image    examples.tfrecord: 20,000 times image (784 bytes) and label (int64)
///   examples_floats, examples_shuffled
///                     examples.tfrecord: 50,000 times f0 to f9, one float each
///   csv               table.csv: 50,000 lines of ten numbers
///   images            image-000.jpg to image-255.jpg: smooth colours, 256 x 256
///   interleave_records, interleave_lines   64 files of 1,000 records or lines of about 100 bytes
void write_data_files(const std::string& name, const std::string& images,
                      const std::string& folder);

/// "record-07.tfrecord" or "lines-07.txt" of the cases that interleave, in order.
std::vector<std::string> many_files(const std::string& name, const std::string& folder);

}  // namespace cohort::bench
