// SPDX-License-Identifier: Apache-2.0
//
// Rows by number out of one block of memory: the inner loop of the index path.
#pragma once

#include <cstdint>
#include <span>

namespace cohort::internal::data {

/// Copies the rows `rows` of `row_bytes` bytes each, one after the other, to `out`.
void gather_rows(const uint8_t* data, int64_t row_bytes, std::span<const int64_t> rows,
                 uint8_t* out);

/// Gathers rows of `row_values` bytes as float32(byte) / divisor, correctly rounded: the same bits
/// as a conversion followed by a division, whatever current_isa() is.
void gather_rows_divided(const uint8_t* data, int64_t row_values, float divisor,
                         std::span<const int64_t> rows, float* out);

}  // namespace cohort::internal::data
