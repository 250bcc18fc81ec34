// SPDX-License-Identifier: Apache-2.0
//
// Numbers on their way from the servers.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/shard_rows.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kPull = "[parameter_servers] ";
constexpr std::size_t kPullHeaderBytes = 64;

/// Reads the rows of an answer to where they belong, unless they are there.
std::function<void(const rpc::Payload&)> taker(std::span<std::byte> to) {
  return [to](const rpc::Payload& payload) {
    PayloadReader in(kPull, payload);
    in.header();
    in.expect(to.size());
    in.read(to.data(), to.size());
  };
}

/// Reads them to the rows `which` of all.
std::function<void(const rpc::Payload&)> taker(std::byte* to, std::size_t row_bytes,
                                               std::vector<std::size_t> which) {
  return [to, row_bytes, which = std::move(which)](const rpc::Payload& payload) {
    PayloadReader in(kPull, payload);
    in.header();
    in.expect(which.size() * row_bytes);
    for (const std::size_t row : which) in.read(to + row * row_bytes, row_bytes);
  };
}

/// Whether each number is there once; by a table that is at most half full, of places in `rows`, so
/// that of a few thousand it stays in the core's first cache. They are sorted only if not: that
/// costs several times as much.
bool are_distinct(std::span<const int64_t> rows) {
  constexpr uint64_t kGolden = 0x9e37'79b9'7f4a'7c15;
  if (rows.size() > std::numeric_limits<uint32_t>::max() / 2) return false;
  const std::size_t places = std::bit_ceil(std::max<std::size_t>(2, 2 * rows.size()));
  const int shift = 64 - std::countr_zero(places);
  std::vector<uint32_t> table(places);  // from 1; 0: none
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t at = (static_cast<uint64_t>(rows[i]) * kGolden) >> shift;
    for (; table[at] != 0; at = (at + 1) & (places - 1)) {
      if (rows[table[at] - 1] == rows[i]) return false;
    }
    table[at] = static_cast<uint32_t>(i + 1);
  }
  return true;
}

/// Row position[i] of `rows` for each i; by this thread alone, for what others do costs more.
Tensor spread(const ParameterHandle& variable, const Tensor& rows,
              const std::vector<int64_t>& position) {
  Tensor out = empty(variable.shape_of_rows(static_cast<int64_t>(position.size())), variable.dtype);
  const std::size_t row_bytes = variable.row_bytes();
  const auto* const from = static_cast<const std::byte*>(rows.const_data_ptr());
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  for (const int64_t row : position) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

/// Which one has the row. One below 0 is the first one's, which refuses it.
std::size_t shard_of(const ParameterHandle& variable, int64_t row) {
  const auto behind = std::upper_bound(
      variable.shards.begin() + 1, variable.shards.end(), row,
      [](int64_t number, const BoundShard& shard) { return number < shard.place.first; });
  return static_cast<std::size_t>(behind - variable.shards.begin()) - 1;
}

}  // namespace

// The tensor is filled when the calls are over.
Tensor ParameterServers::start_pull(Calls& calls, const ParameterHandle& variable,
                                    const StoredPlace& place, RowRange range) {
  Tensor out = empty(variable.shape_of_rows(range.count), variable.dtype);
  auto* const to = static_cast<std::byte*>(out.mutable_data_ptr());
  const std::size_t row_bytes = variable.row_bytes();
  for (const BoundShard& shard : variable.shards) {
    const int64_t begin = std::max(range.first, shard.place.first);
    const int64_t end = std::min(range.first + range.count, shard.place.first + shard.place.rows);
    if (begin >= end) continue;
    in_messages(variable, end - begin, [&](int64_t first, int64_t rows) {
      rpc::MessageWriter header;
      header.number(shard.id);
      write_place(header, place);
      write_range(header, {begin - shard.place.first + first, rows});
      const auto offset = static_cast<std::size_t>(begin - range.first + first) * row_bytes;
      const std::span here(to + offset, static_cast<std::size_t>(rows) * row_bytes);
      calls.start(at(shard), "ps.pull", message(header), taker(here), /*wait_for_server=*/false,
                  kPullHeaderBytes + here.size(), here);
    });
  }
  return out;
}

Tensor ParameterServers::pull_range(const ParameterHandle& variable, const StoredPlace& place,
                                    RowRange range) {
  Calls calls(options_.timeout);
  Tensor out = start_pull(calls, variable, place, range);
  calls.wait();
  return out;
}

std::vector<Tensor> ParameterServers::pull_all(const std::vector<const ParameterHandle*>& variables,
                                               const StoredPlace& place) {
  Calls calls(options_.timeout);
  std::vector<Tensor> out;
  for (const ParameterHandle* each : variables) {
    out.push_back(start_pull(calls, *each, place, {0, each->rows()}));
  }
  calls.wait();
  return out;
}

Tensor ParameterServers::pull(const ParameterHandle& variable, const StoredPlace& place) {
  return pull_range(variable, place, {0, variable.rows()});
}

// Rows of which each is named once, to `to` in their order.
void ParameterServers::pull_distinct(const ParameterHandle& variable, std::span<const int64_t> rows,
                                     std::byte* to) {
  const std::size_t row_bytes = variable.row_bytes();
  const std::size_t most = rows_of_message(variable);
  Calls calls(options_.timeout);
  const auto send = [&](const BoundShard& shard, std::vector<int64_t> mine, auto take,
                        std::span<std::byte> here) {
    rpc::MessageWriter header;
    header.number(shard.id);
    header.number(mine.size());
    rpc::Payload request = message(header);
    const std::size_t bytes = mine.size() * row_bytes;
    append_rows(request, std::move(mine));
    calls.start(at(shard), "ps.pull_rows", std::move(request), std::move(take),
                /*wait_for_server=*/false, kPullHeaderBytes + bytes, here);
  };
  if (variable.shards.size() == 1) {
    for (std::size_t first = 0; first < rows.size(); first += most) {
      const auto some = rows.subspan(first, std::min(most, rows.size() - first));
      const std::span here(to + first * row_bytes, some.size() * row_bytes);
      send(variable.shards[0], {some.begin(), some.end()}, taker(here), here);
    }
    return calls.wait();
  }
  struct Part {
    std::vector<int64_t> rows = {};       // as the shard counts them
    std::vector<std::size_t> which = {};  // of all
  };
  std::vector<Part> parts(variable.shards.size());
  const auto send_part = [&](std::size_t shard) {
    Part part = std::exchange(parts[shard], {});
    send(variable.shards[shard], std::move(part.rows), taker(to, row_bytes, std::move(part.which)),
         {});
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t shard = shard_of(variable, rows[i]);
    parts[shard].rows.push_back(rows[i] - variable.shards[shard].place.first);
    parts[shard].which.push_back(i);
    if (parts[shard].rows.size() == most) send_part(shard);
  }
  for (std::size_t shard = 0; shard < parts.size(); ++shard) {
    if (!parts[shard].rows.empty()) send_part(shard);
  }
  calls.wait();
}

Tensor ParameterServers::pull_rows(const ParameterHandle& variable, const Tensor& rows) {
  const auto pull = [&](std::span<const int64_t> distinct) {
    Tensor out =
        empty(variable.shape_of_rows(static_cast<int64_t>(distinct.size())), variable.dtype);
    pull_distinct(variable, distinct, static_cast<std::byte*>(out.mutable_data_ptr()));
    return out;
  };
  const Tensor index = rows.cpu().to(kInt64).contiguous();
  const std::span asked(index.const_data_ptr<int64_t>(), static_cast<std::size_t>(index.numel()));
  if (are_distinct(asked)) return pull(asked);
  const variables::UniqueRows unique = variables::unique_rows(index);
  return spread(variable, pull(unique.rows), unique.position);
}

}  // namespace cohort::internal::coordinator
