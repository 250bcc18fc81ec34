// SPDX-License-Identifier: Apache-2.0
//
// What stands behind the last byte that HDF5 knows of: a checksum of the whole file. A changed bit
// in how arrays are described can end libhdf5, and the process with it, so it must not get to see
// one. Readers other than ours do not look there, and whoever opens the file to write cuts it off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cohort/archive/file_bytes.h"

namespace cohort::internal::archive {

inline constexpr std::size_t kTrailerBytes = 20;

/// Fills in the last kTrailerBytes of `file`, whose others are there.
void write_trailer(FileBytes& file);

/// What a trailer says; none: these last kTrailerBytes of a file are no trailer.
std::optional<uint32_t> trailer_sum(std::string_view last);

/// The bytes before the trailer, or all of them where there is none, as in files of other programs.
/// None: they are not those that the trailer was written for.
std::optional<std::string_view> without_trailer(std::string_view file);

}  // namespace cohort::internal::archive
