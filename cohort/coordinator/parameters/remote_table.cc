// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/coordinator/parameters/remote_variable.h"
#include "cohort/coordinator/parameters/shard_rows.h"

namespace cohort::internal::coordinator {
namespace {

using variables::IdMapState;
using Entries = std::vector<IdMapState::Entry>;

// The number of each row as it lies on the servers. Empty: they lie in their order.
std::vector<int64_t> numbers_as_stored(const ParameterHandle& handle,
                                       const std::vector<ShardIds>& shards) {
  std::vector<int64_t> out;
  bool in_order = true;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const Shard& place = handle.shards[s].place;
    in_order = in_order && shards[s].numbers.empty();
    for (int64_t row = 0; row < place.rows; ++row) {
      out.push_back(shards[s].numbers.empty() ? place.first + row
                                              : shards[s].numbers[static_cast<std::size_t>(row)]);
    }
  }
  return in_order ? std::vector<int64_t>() : out;
}

Tensor places_of(const std::vector<int64_t>& numbers) {
  return from_vector(numbers, {static_cast<int64_t>(numbers.size())});
}

Tensor moved_by_numbers(const std::vector<int64_t>& numbers, const Tensor& stored) {
  if (numbers.empty()) return stored;
  const at::NoGradGuard no_grad;
  return at::empty_like(stored).index_copy_(0, places_of(numbers), stored);
}

Tensor moved_as_stored(const std::vector<int64_t>& numbers, const Tensor& by_numbers) {
  if (numbers.empty()) return by_numbers;
  const at::NoGradGuard no_grad;
  return at::index_select(by_numbers, 0, places_of(numbers));
}

// The last ones of them; returns how many went.
int64_t keep_last(Entries& all, int64_t most) {
  const auto beyond = std::max<int64_t>(0, static_cast<int64_t>(all.size()) - most);
  all.erase(all.begin(), all.begin() + beyond);
  return beyond;
}

// What each shard gets of the ids, in their order; those for which it has no row are left out, and
// candidates that are more than it counts.
int64_t share_out(const ParameterHandle& handle, const variables::IdMapOptions& options,
                  const IdMapState& all, std::vector<IdMapState>* out) {
  for (const auto& each : all.rows) (*out)[shard_of_id(handle, each.id)].rows.push_back(each);
  for (const auto& each : all.candidates) {
    (*out)[shard_of_id(handle, each.id)].candidates.push_back(each);
  }
  int64_t lost = 0;
  for (std::size_t s = 0; s < out->size(); ++s) {
    IdMapState& mine = (*out)[s];
    mine.step = all.step;
    const auto rows = handle.shards[s].place.rows;
    mine.evicted = keep_last(mine.rows, rows);
    lost += mine.evicted;
    const bool is_given = options.candidates > 0;
    keep_last(mine.candidates,
              is_given ? part_of_number(options.candidates, rows, handle.rows()) : rows);
  }
  out->front().evicted += all.evicted;
  out->front().refused += all.refused;
  return lost;
}

// Gives each id a row of its shard, its own one if that is there, and each row a number.
class Placement {
 public:
  Placement(const ParameterHandle& handle, std::vector<IdMapState>& shards)
      : handle_(handle), shards_(shards), is_taken_(static_cast<std::size_t>(handle.rows())) {
    for (const BoundShard& each : handle.shards) {
      numbers_.emplace_back(static_cast<std::size_t>(each.place.rows), kNone);
    }
    for (std::size_t s = 0; s < shards_.size(); ++s) place_ids(s);
    for (std::size_t s = 0; s < shards_.size(); ++s) keep_order(s);
    for (std::size_t s = 0; s < shards_.size(); ++s) fill_up(s);
  }
  /// Empty where rows have their places for numbers.
  std::vector<int64_t> numbers(std::size_t shard) const {
    const std::vector<int64_t>& mine = numbers_[shard];
    for (std::size_t row = 0; row < mine.size(); ++row) {
      if (mine[row] != first(shard) + static_cast<int64_t>(row)) return mine;
    }
    return {};
  }

 private:
  static constexpr int64_t kNone = -1;
  int64_t first(std::size_t shard) const { return handle_.shards[shard].place.first; }
  void give(std::size_t shard, std::size_t row, int64_t number) {
    numbers_[shard][row] = number;
    is_taken_[static_cast<std::size_t>(number)] = 1;
  }
  bool is_here(std::size_t shard, int64_t number) const {
    const Shard& place = handle_.shards[shard].place;
    return number >= place.first && number < place.first + place.rows;
  }
  void place_ids(std::size_t shard) {
    Entries& mine = shards_[shard].rows;
    for (const auto& each : mine) {
      if (!is_here(shard, each.row)) continue;
      give(shard, static_cast<std::size_t>(each.row - first(shard)), each.row);
    }
    std::size_t next = 0;
    for (auto& each : mine) {
      if (is_here(shard, each.row)) {
        each.row -= first(shard);
        continue;
      }
      while (numbers_[shard][next] != kNone) ++next;
      give(shard, next, each.row);
      each.row = static_cast<int64_t>(next);
    }
  }
  void keep_order(std::size_t shard) {
    for (std::size_t row = 0; row < numbers_[shard].size(); ++row) {
      const int64_t own = first(shard) + static_cast<int64_t>(row);
      const bool is_free = numbers_[shard][row] == kNone;
      if (is_free && is_taken_[static_cast<std::size_t>(own)] == 0) give(shard, row, own);
    }
  }
  void fill_up(std::size_t shard) {
    for (std::size_t row = 0; row < numbers_[shard].size(); ++row) {
      if (numbers_[shard][row] != kNone) continue;
      while (is_taken_[next_] != 0) ++next_;
      give(shard, row, static_cast<int64_t>(next_));
    }
  }

  const ParameterHandle& handle_;
  std::vector<IdMapState>& shards_;
  std::vector<std::vector<int64_t>> numbers_;  // of the shards' rows
  std::vector<char> is_taken_;                 // by number
  std::size_t next_ = 0;
};

}  // namespace

RemoteTable::RemoteTable(RemoteVariable& rows, std::shared_ptr<RemoteVariables> store,
                         const variables::IdTableOptions& options)
    : rows_(rows), store_(std::move(store)), options_(options) {}

const ParameterHandle& RemoteTable::handle() const { return rows_.handle(); }

int64_t RemoteTable::see(std::span<const int64_t> ids, std::span<const int64_t> counts,
                         bool begins_step) {
  return servers().see_ids(handle(), ids, counts, begins_step);
}

variables::IdTable::Found RemoteTable::find(std::span<const int64_t> ids) {
  return servers().pull_ids(handle(), ids);
}

int64_t RemoteTable::updates() const { return rows_.updates(); }

variables::IdTable::Counts RemoteTable::counts() {
  Counts out;
  for (const ShardIds& each : servers().read_ids(handle(), ParameterServers::IdsPart::kCounts)) {
    out.size += each.counts.size;
    out.candidates += each.counts.candidates;
    out.evicted += each.counts.evicted;
    out.refused += each.counts.refused;
  }
  return out;
}

IdMapState RemoteTable::state() {
  const std::vector<ShardIds> shards =
      servers().read_ids(handle(), ParameterServers::IdsPart::kAll);
  IdMapState out;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const Shard& place = handle().shards[s].place;
    if (place.rows == 0) continue;
    IdMapState mine = variables::state_of(shards[s].map);
    for (auto& each : mine.rows) {
      each.row = shards[s].numbers.empty()
                     ? place.first + each.row
                     : shards[s].numbers.at(static_cast<std::size_t>(each.row));
    }
    out.step = std::max(out.step, mine.step);
    out.evicted += mine.evicted;
    out.refused += mine.refused;
    out.rows.insert(out.rows.end(), mine.rows.begin(), mine.rows.end());
    out.candidates.insert(out.candidates.end(), mine.candidates.begin(), mine.candidates.end());
  }
  for (Entries* each : {&out.rows, &out.candidates}) {
    std::stable_sort(each->begin(), each->end(),
                     [](const auto& a, const auto& b) { return a.last < b.last; });
  }
  // Of a few each server counts one more, perhaps.
  const auto most = static_cast<std::size_t>(variables::IdMap(options_.map).options().candidates);
  Entries& counted = out.candidates;
  if (counted.size() > most) {
    counted.erase(counted.begin(), counted.end() - static_cast<std::ptrdiff_t>(most));
  }
  return out;
}

// What is there keeps its numbers: rows of a file may come before its ids, or behind them.
void RemoteTable::restore(const IdMapState& state) {
  const at::NoGradGuard no_grad;
  variables::IdMap checked(options_.map);
  checked.restore(state);
  const std::vector<ShardIds> before =
      servers().read_ids(handle(), ParameterServers::IdsPart::kAll);
  std::vector<IdMapState> parts(before.size());
  const int64_t lost = share_out(handle(), options_.map, checked.state(), &parts);
  const Placement placement(handle(), parts);
  std::vector<ShardIds> after(before.size());
  for (std::size_t s = 0; s < after.size(); ++s) {
    after[s].map = variables::numbers_of(parts[s]);
    after[s].numbers = placement.numbers(s);
  }
  const std::vector<int64_t> from = numbers_as_stored(handle(), before);
  const std::vector<int64_t> to = numbers_as_stored(handle(), after);
  std::vector<std::pair<StoredPlace, Tensor>> kept;
  if (from != to) {
    kept.emplace_back(StoredPlace{}, Tensor());
    for (const auto& [name, slots] : before.front().slot_sets) {
      for (uint64_t slot = 0; slot < slots; ++slot) {
        kept.emplace_back(StoredPlace{.slots = name, .slot = slot}, Tensor());
      }
    }
  }
  for (auto& [place, rows] : kept) {
    rows = moved_by_numbers(from, servers().pull(handle(), place));
  }
  servers().restore_ids(handle(), after);
  for (const auto& [place, rows] : kept) {
    servers().write(handle(), place, variables::Write::kAssign, moved_as_stored(to, rows));
  }
  rows_.note_change();
  if (lost == 0) return;
  COHORT_LOG(kWarning, "[dynamic_table] ", lost, " ids of \"", handle().name,
             "\" have lost their rows: they were restored into servers of which some have fewer "
             "rows than ids that belong to them; give the table more rows");
}

std::vector<int64_t> RemoteTable::stored_numbers() {
  return numbers_as_stored(handle(),
                           servers().read_ids(handle(), ParameterServers::IdsPart::kRowNumbers));
}

Tensor RemoteTable::by_numbers(const Tensor& stored) {
  if (handle().shards.size() == 1) return stored;
  return moved_by_numbers(stored_numbers(), stored);
}

Tensor RemoteTable::as_stored(const Tensor& by_numbers) {
  if (handle().shards.size() == 1) return by_numbers;
  return moved_as_stored(stored_numbers(), by_numbers);
}

variables::RowSum sum_by_ids(const IndexedSlices& slices, DType dtype) {
  const Tensor ids = slices.indices.cpu().to(kInt64).contiguous();
  const std::span given(ids.const_data_ptr<int64_t>(), static_cast<std::size_t>(ids.numel()));
  std::vector<int64_t> all(given.begin(), given.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<int64_t> places;
  places.reserve(given.size());
  for (const int64_t id : given) {
    places.push_back(std::lower_bound(all.begin(), all.end(), id) - all.begin());
  }
  IndexedSlices numbered = slices;
  numbered.indices = places_of(places);
  numbered.dense_shape[0] = static_cast<int64_t>(all.size());
  variables::RowSum out = variables::sum_rows(numbered, dtype);
  out.rows = std::move(all);
  return out;
}

}  // namespace cohort::internal::coordinator
