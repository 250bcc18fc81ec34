// SPDX-License-Identifier: Apache-2.0
//
// Which rows of a variable go where, and in which messages. Included by sources alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/coordinator/parameters/parameter_servers.h"

namespace cohort::internal::coordinator {

// Of one message: large enough to be worth one, small enough that a server reads one while the next
// one is on its way.
inline constexpr std::size_t kMessageBytes = std::size_t{4} << 20;
/// Row numbers [first, last) of a list, which one shard has.
struct RowPart {
  std::size_t first;
  std::size_t last;
};

/// The part of ascending rows that lies in the shard.
inline RowPart part_of(const std::vector<int64_t>& ascending, const Shard& shard) {
  const auto at = [&](int64_t row) {
    return static_cast<std::size_t>(std::lower_bound(ascending.begin(), ascending.end(), row) -
                                    ascending.begin());
  };
  return {at(shard.first), at(shard.first + shard.rows)};
}

/// Rows [first, last) of a list as the shard counts them.
inline std::vector<int64_t> local_rows(const std::vector<int64_t>& rows, RowPart part,
                                       const Shard& shard) {
  std::vector<int64_t> out(rows.begin() + static_cast<std::ptrdiff_t>(part.first),
                           rows.begin() + static_cast<std::ptrdiff_t>(part.last));
  for (int64_t& row : out) row -= shard.first;
  return out;
}

/// Of a table whose rows belong to ids: the shard that has the id's row, if it has one. A shard of
/// more rows has as many more ids. splitmix64's mixing of the id, whatever the machine: it is the
/// same for all processes, and for all jobs.
inline std::size_t shard_of_id(const ParameterHandle& variable, int64_t id) {
  if (variable.shards.size() == 1) return 0;
  uint64_t x = static_cast<uint64_t>(id) + 0x9e37'79b9'7f4a'7c15;
  x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9;
  x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11eb;
  x ^= x >> 31;
  const auto row = static_cast<int64_t>(x % static_cast<uint64_t>(variable.rows()));
  const auto behind = std::upper_bound(
      variable.shards.begin() + 1, variable.shards.end(), row,
      [](int64_t number, const BoundShard& shard) { return number < shard.place.first; });
  return static_cast<std::size_t>(behind - variable.shards.begin()) - 1;
}

/// The part of a number of such a table that a shard of so many of its rows has. Rounded up: of a
/// few each shard has one.
inline int64_t part_of_number(int64_t whole, int64_t rows, int64_t of) {
  return whole / of * rows + (whole % of * rows + of - 1) / of;
}

inline std::size_t rows_of_message(const ParameterHandle& variable) {
  return std::max<std::size_t>(1, kMessageBytes / std::max<std::size_t>(1, variable.row_bytes()));
}

/// Calls body(first, count) for pieces of [0, rows), one message each; at least once.
template <class Body>
void in_messages(const ParameterHandle& variable, int64_t rows, const Body& body) {
  const auto most = static_cast<int64_t>(rows_of_message(variable));
  int64_t first = 0;
  do {
    const int64_t count = std::min(most, rows - first);
    body(first, count);
    first += count;
  } while (first < rows);
}

inline Tensor by_rows(const ParameterHandle& variable, const Tensor& contiguous) {
  const int64_t rows = variable.rows();
  return contiguous.view({rows, rows == 0 ? 0 : contiguous.numel() / rows});
}

inline void write_place(rpc::MessageWriter& out, const StoredPlace& place) {
  out.text(place.slots);
  out.number(place.slot);
}

inline void write_range(rpc::MessageWriter& out, RowRange range) {
  out.signed_number(range.first);
  out.signed_number(range.count);
}

}  // namespace cohort::internal::coordinator
