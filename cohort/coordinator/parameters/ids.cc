// SPDX-License-Identifier: Apache-2.0
//
// Ids on their way to the servers that have their rows.
#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/push.h"
#include "cohort/coordinator/parameters/shard_rows.h"
#include "cohort/coordinator/parameters/stored_table.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kIds = "[dynamic_table] ";
constexpr std::size_t kIdsOfMessage = kMessageBytes / (2 * sizeof(int64_t));
constexpr uint64_t kNumbersOfPage = kMessageBytes / sizeof(int64_t);
constexpr std::size_t kMostPushed = rpc::kMostMessageBytes - (std::size_t{2} << 20);

// What it gives has been changed when it has ended, and not before.
void refuse_transaction(const char* what) {
  if (Transaction::current() == nullptr) return;
  throw Unimplemented(str_cat(kIds, "expected no ", what,
                              " in a function that schedule_exactly_once runs: rows are given when "
                              "ids are looked up, and would be kept though the function is not "
                              "counted; use schedule()"));
}

/// Numbers [first, last) of those that belong to each shard, in their order.
std::vector<std::vector<std::size_t>> by_shard(const ParameterHandle& variable,
                                               std::span<const int64_t> ids) {
  std::vector<std::vector<std::size_t>> out(variable.shards.size());
  for (std::size_t i = 0; i < ids.size(); ++i) out[shard_of_id(variable, ids[i])].push_back(i);
  return out;
}

std::vector<int64_t> some_of(std::span<const int64_t> all, std::span<const std::size_t> which) {
  std::vector<int64_t> out;
  out.reserve(which.size());
  for (const std::size_t i : which) out.push_back(all[i]);
  return out;
}

std::span<const std::size_t> piece_of(const std::vector<std::size_t>& all, std::size_t first,
                                      std::size_t most) {
  return std::span(all).subspan(first, std::min(most, all.size() - first));
}

}  // namespace

void ParameterServers::make_table(const ParameterHandle& variable,
                                  const variables::IdTableOptions& whole) {
  const WithoutTransaction at_once;
  Calls calls(options_.timeout);
  for (const BoundShard& shard : variable.shards) {
    if (shard.place.rows == 0) continue;
    variables::IdTableOptions part = whole;
    part.map.capacity = shard.place.rows;
    part.map.candidates = part_of_number(whole.map.candidates, shard.place.rows, variable.rows());
    rpc::MessageWriter header;
    header.number(shard.id);
    write_table_options(header, part);
    calls.start_once(numbers_at(shard), "ps.make_table", message(header));
  }
  calls.wait();
}

// To every server, also those of no id: steps are the same everywhere.
int64_t ParameterServers::see_ids(const ParameterHandle& variable, std::span<const int64_t> ids,
                                  std::span<const int64_t> counts, bool begins_step) {
  refuse_transaction("training lookup");
  const std::vector<std::vector<std::size_t>> mine = by_shard(variable, ids);
  int64_t refused = 0;
  Calls calls(options_.timeout);
  std::size_t largest = 1;
  for (const auto& each : mine) largest = std::max(largest, each.size());
  for (std::size_t first = 0; first < largest; first += kIdsOfMessage) {
    for (std::size_t s = 0; s < mine.size(); ++s) {
      const BoundShard& shard = variable.shards[s];
      const bool begins = begins_step && first == 0;
      if (shard.place.rows == 0 || (first >= mine[s].size() && !begins)) continue;
      const auto which = piece_of(mine[s], std::min(first, mine[s].size()), kIdsOfMessage);
      rpc::MessageWriter header;
      header.number(shard.id);
      header.number(which.size());
      header.number(begins ? 1 : 0);
      rpc::Payload request = message(header);
      append_rows(request, some_of(ids, which));
      append_rows(request, some_of(counts, which));
      calls.start_once(numbers_at(shard), "ps.see", request, [&](const rpc::Payload& answer) {
        PayloadReader data(kIds, answer);
        const std::string text = data.header();
        refused += rpc::MessageReader(kIds, text).signed_number();
      });
    }
    calls.wait();  // a server's part is seen in its order
  }
  return refused;
}

variables::IdTable::Found ParameterServers::pull_ids(const ParameterHandle& variable,
                                                     std::span<const int64_t> ids) {
  variables::IdTable::Found out;
  out.has_row.resize(ids.size());
  out.rows = empty(variable.shape_of_rows(static_cast<int64_t>(ids.size())), variable.dtype);
  auto* const to = static_cast<std::byte*>(out.rows.mutable_data_ptr());
  const std::size_t row_bytes = variable.row_bytes();
  const std::size_t most = rows_of_message(variable);
  const std::vector<std::vector<std::size_t>> mine = by_shard(variable, ids);
  Calls calls(options_.timeout);
  for (std::size_t s = 0; s < mine.size(); ++s) {
    for (std::size_t first = 0; first < mine[s].size(); first += most) {
      const auto which = piece_of(mine[s], first, most);
      rpc::MessageWriter header;
      header.number(variable.shards[s].id);
      header.number(which.size());
      rpc::Payload request = message(header);
      append_rows(request, some_of(ids, which));
      const auto take = [&out, to, row_bytes, which](const rpc::Payload& answer) {
        PayloadReader in(kIds, answer);
        in.header();
        in.expect(which.size() * (row_bytes + 1));
        for (const std::size_t i : which) in.read(to + i * row_bytes, row_bytes);
        for (const std::size_t i : which) in.read(&out.has_row[i], 1);
      };
      calls.start(at(variable.shards[s]), "ps.pull_ids", std::move(request), take,
                  /*wait_for_server=*/false, 64 + which.size() * (row_bytes + 1));
    }
  }
  calls.wait();
  return out;
}

// Where others have a part in the update it is one step, and so one message.
void ParameterServers::Push::ids(const ParameterHandle& variable, const UpdateStep& step,
                                 const variables::RowSum& gradient, bool others_too) {
  refuse_transaction("update of a DynamicTable");
  const std::size_t of_one = variable.row_bytes() + sizeof(int64_t);
  const std::vector<std::vector<std::size_t>> mine = by_shard(variable, gradient.rows);
  for (std::size_t s = 0; others_too && s < mine.size(); ++s) {
    COHORT_CHECK_ARG(mine[s].size() * of_one <= kMostPushed,
                     "[optimizer.apply_gradients] expected a gradient of at most ", kMostPushed,
                     " bytes for \"", variable.shard_name(s), "\", got ", mine[s].size() * of_one,
                     "; use lazy_rows, or more shards (variable_partitioner)");
  }
  const std::size_t most = others_too ? kMostPushed : rows_of_message(variable);
  for (std::size_t s = 0; s < mine.size(); ++s) {
    const BoundShard& shard = variable.shards[s];
    if (shard.place.rows == 0 || (mine[s].empty() && !others_too)) continue;
    std::size_t first = 0;
    do {
      const auto which = piece_of(mine[s], first, most);
      rpc::MessageWriter header;
      header.number(shard.id);
      write_step(header, step);
      header.number(which.size());
      header.number(others_too ? 1 : 0);
      rpc::Payload request = message(header);
      append_rows(request, some_of(gradient.rows, which));
      const std::vector<int64_t> rows(which.begin(), which.end());
      const auto count = static_cast<int64_t>(rows.size());
      append_bytes(request, gradient.values.index_select(0, from_vector(rows, {count})));
      impl_->servers.change(impl_->calls, shard, "ps.push_ids", request);
      first += which.size();
    } while (first < mine[s].size());
  }
}

namespace {

struct ReadPage {
  TablePage page = {};
  std::vector<std::pair<std::string, uint64_t>> slot_sets = {};
};

ReadPage read_page(const rpc::Payload& answer) {
  PayloadReader data(kIds, answer);
  const std::string text = data.header();
  rpc::MessageReader in(kIds, text);
  ReadPage out;
  TablePage& page = out.page;
  page.counts.size = in.signed_number();
  page.counts.candidates = in.signed_number();
  page.counts.evicted = in.signed_number();
  page.counts.refused = in.signed_number();
  page.version = in.number();
  page.total = in.number();
  page.of_rows = in.number_up_to(page.total);
  for (uint64_t left = in.number_up_to(uint64_t{1} << 16); left > 0; --left) {
    std::string name = in.text();
    out.slot_sets.emplace_back(std::move(name), in.number_up_to(update_rules::kMaxSlots));
  }
  page.part = data.integers(in.number_up_to(data.left()));
  in.end();
  data.expect(0);
  return out;
}

}  // namespace

std::vector<ShardIds> ParameterServers::read_ids(const ParameterHandle& variable, IdsPart part) {
  std::vector<ShardIds> out;
  for (const BoundShard& shard : variable.shards) {
    ShardIds& mine = out.emplace_back();
    if (shard.place.rows == 0) continue;
    const auto page_behind = [&](std::size_t first, uint64_t most) {
      rpc::MessageWriter header;
      header.number(shard.id);
      header.number(first);
      header.number(most);
      return read_page(call(shard.place.server, "ps.table", message(header)));
    };
    const ReadPage begin = page_behind(0, 0);
    mine.counts = begin.page.counts;
    mine.slot_sets = begin.slot_sets;
    if (part == IdsPart::kCounts) continue;
    const uint64_t of_rows = begin.page.of_rows;
    const uint64_t total = part == IdsPart::kAll ? begin.page.total : of_rows;
    std::vector<int64_t> all;
    while (all.size() < total) {
      const TablePage page =
          page_behind(all.size(), std::min<uint64_t>(total - all.size(), kNumbersOfPage)).page;
      const bool is_same =
          part == IdsPart::kAll ? page.version == begin.page.version : page.of_rows == of_rows;
      COHORT_CHECK_STATE(is_same && !page.part.empty(), kIds, "expected nobody to train while the ",
                         "ids of \"", variable.name,
                         "\" are read, got a change; read them behind join()");
      all.insert(all.end(), page.part.begin(), page.part.end());
    }
    const auto behind = all.begin() + static_cast<std::ptrdiff_t>(of_rows);
    mine.numbers.assign(all.begin(), behind);
    mine.map.assign(behind, all.end());
  }
  return out;
}

void ParameterServers::restore_ids(const ParameterHandle& variable,
                                   const std::vector<ShardIds>& all) {
  const WithoutTransaction at_once;
  for (std::size_t s = 0; s < variable.shards.size(); ++s) {
    const BoundShard& shard = variable.shards[s];
    if (shard.place.rows == 0) continue;
    std::vector<int64_t> numbers = all[s].numbers;
    numbers.insert(numbers.end(), all[s].map.begin(), all[s].map.end());
    for (std::size_t first = 0; first < numbers.size();) {
      const std::size_t count = std::min<std::size_t>(numbers.size() - first, kNumbersOfPage);
      const auto from = numbers.begin() + static_cast<std::ptrdiff_t>(first);
      rpc::MessageWriter header;
      header.number(shard.id);
      header.number(numbers.size());
      header.number(all[s].numbers.size());
      header.number(first);
      header.number(count);
      rpc::Payload request = message(header);
      append_rows(request, {from, from + static_cast<std::ptrdiff_t>(count)});
      call_once(shard.place.server, "ps.restore_table", request);
      first += count;
    }
  }
}

}  // namespace cohort::internal::coordinator
