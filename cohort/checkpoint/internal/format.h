// SPDX-License-Identifier: Apache-2.0
//
// What reader and writer of the safetensors format agree on.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

struct FormatType {
  std::string_view name;
  DType dtype;
  int bytes;
};

inline constexpr std::array kFormatTypes = {
    FormatType{"BOOL", DType::Bool, 1},
    FormatType{"U8", DType::Byte, 1},
    FormatType{"I8", DType::Char, 1},
    FormatType{"F8_E5M2", DType::Float8_e5m2, 1},
    FormatType{"F8_E4M3", DType::Float8_e4m3fn, 1},
    FormatType{"I16", DType::Short, 2},
    FormatType{"U16", DType::UInt16, 2},
    FormatType{"F16", DType::Half, 2},
    FormatType{"BF16", DType::BFloat16, 2},
    FormatType{"I32", DType::Int, 4},
    FormatType{"U32", DType::UInt32, 4},
    FormatType{"F32", DType::Float, 4},
    FormatType{"F64", DType::Double, 8},
    FormatType{"I64", DType::Long, 8},
    FormatType{"U64", DType::UInt64, 8},
};

inline constexpr uint64_t kLengthBytes = 8;
inline constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own bound
inline constexpr const char* kMetadataKey = "__metadata__";

// Keys of the metadata, which other readers pass over. Each file that has one has both, so that no
// damage turns it into one without.
inline constexpr const char* kTensorSums = "cohort.crc32c";        // {"name": "0123abcd"}
inline constexpr const char* kHeaderSum = "cohort.crc32c.header";  // "0123abcd"

/// What the header says of a tensor, apart from its place.
struct FormatEntry {
  std::string_view type;
  Shape shape;
};
/// Of all that the header says and another tool would keep if it wrote the file anew: the metadata
/// without kHeaderSum, and each tensor's name, type and shape.
uint32_t header_sum(const std::map<std::string, std::string>& metadata,
                    const std::map<std::string, FormatEntry>& entries);

/// A checksum as text: eight hexadecimal digits.
std::string digits_of(uint32_t crc);

}  // namespace cohort::internal::checkpoint
