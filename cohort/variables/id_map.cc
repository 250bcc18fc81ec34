// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/id_map.h"

#include <algorithm>
#include <unordered_set>

#include "cohort/base/check.h"

namespace cohort::internal::variables {
namespace {

constexpr int64_t kFormat = 1;
constexpr std::size_t kHead = 6;       // format, step, evicted, refused, rows, candidates
constexpr std::size_t kOfRow = 4;      // id, row, count, last
constexpr std::size_t kOfPending = 3;  // id, count, last
// So that what is damaged never overflows.
constexpr int64_t kMostCounted = int64_t{1} << 62;

int64_t numbers_for(int64_t rows, int64_t candidates) {
  return static_cast<int64_t>(kHead) + static_cast<int64_t>(kOfRow) * rows +
         static_cast<int64_t>(kOfPending) * candidates;
}

}  // namespace

std::vector<int64_t> numbers_of(const IdMapState& state) {
  const auto count_of = [](const auto& entries) { return static_cast<int64_t>(entries.size()); };
  std::vector<int64_t> out = {kFormat,       state.step,           state.evicted,
                              state.refused, count_of(state.rows), count_of(state.candidates)};
  out.reserve(kHead + kOfRow * state.rows.size() + kOfPending * state.candidates.size());
  for (const auto& each : state.rows) {
    out.insert(out.end(), {each.id, each.row, each.count, each.last});
  }
  for (const auto& each : state.candidates) {
    out.insert(out.end(), {each.id, each.count, each.last});
  }
  return out;
}

IdMapState state_of(std::span<const int64_t> saved) {
  const auto check = [](bool ok, const char* what) {
    if (!ok)
      throw DataLoss(str_cat("[id_map.restore] expected the state of an id map, got ", what));
  };
  check(saved.size() >= kHead && saved[0] == kFormat, "numbers of another format");
  check(std::all_of(saved.begin() + 1, saved.begin() + kHead,
                    [](int64_t n) { return n >= 0 && n < kMostCounted; }),
        "numbers that nobody counts to");
  const auto left = static_cast<int64_t>(saved.size() - kHead);
  const int64_t rows = saved[4], candidates = saved[5];
  check(rows <= left && candidates <= left, "fewer numbers than it says");
  const int64_t said =
      rows * static_cast<int64_t>(kOfRow) + candidates * static_cast<int64_t>(kOfPending);
  check(said <= left, "fewer numbers than it says");
  check(std::all_of(saved.begin() + static_cast<std::ptrdiff_t>(kHead) + said, saved.end(),
                    [](int64_t n) { return n == 0; }),
        "more numbers than it says");
  IdMapState out{.step = saved[1], .evicted = saved[2], .refused = saved[3]};
  std::unordered_set<int64_t> ids, taken;
  std::span<const int64_t> rest = saved.subspan(kHead);
  int64_t before = 0;
  const auto read = [&](const IdMapState::Entry& entry) {
    check(ids.insert(entry.id).second, "an id twice");
    check(entry.count > 0 && entry.count < kMostCounted, "an id that was never seen");
    check(entry.last >= before && entry.last <= out.step, "ids that are not in order");
    before = entry.last;
    return entry;
  };
  for (int64_t i = 0; i < rows; ++i, rest = rest.subspan(kOfRow)) {
    check(rest[1] >= 0 && taken.insert(rest[1]).second, "a row twice");
    out.rows.push_back(read({.id = rest[0], .row = rest[1], .count = rest[2], .last = rest[3]}));
  }
  before = 0;
  for (int64_t i = 0; i < candidates; ++i, rest = rest.subspan(kOfPending)) {
    out.candidates.push_back(read({.id = rest[0], .count = rest[1], .last = rest[2]}));
  }
  return out;
}

CountedIds counted(std::span<const int64_t> ids) {
  CountedIds out;
  std::unordered_map<int64_t, int64_t> places;
  places.reserve(ids.size());
  for (const int64_t id : ids) {
    const auto [found, is_new] = places.try_emplace(id, static_cast<int64_t>(out.ids.size()));
    if (is_new) {
      out.ids.push_back(id);
      out.counts.push_back(0);
    }
    ++out.counts[static_cast<std::size_t>(found->second)];
    out.position.push_back(found->second);
  }
  return out;
}

IdMap::IdMap(const IdMapOptions& options) : options_(options) {
  COHORT_CHECK_ARG(options.capacity > 0, "[id_map] expected a capacity of at least one row, got ",
                   options.capacity);
  COHORT_CHECK_ARG(options.admit_after > 0, "[id_map] expected admit_after of at least 1, got ",
                   options.admit_after);
  COHORT_CHECK_ARG(options.candidates >= 0, "[id_map] expected candidates >= 0, got ",
                   options.candidates);
  COHORT_CHECK_ARG(!options.steps_to_live || *options.steps_to_live > 0,
                   "[id_map] expected steps_to_live of at least 1, got ",
                   options.steps_to_live.value_or(0));
  if (options_.candidates == 0) options_.candidates = options_.capacity;
}

IdMap::Rank IdMap::rank(int64_t row) const {
  const Row& what = rows_[static_cast<std::size_t>(row)];
  return {what.count, what.last, row};
}

int64_t IdMap::find(int64_t id) const {
  const auto found = row_of_.find(id);
  return found == row_of_.end() ? kNoRow : found->second;
}

void IdMap::begin_step() {
  if (is_ranked()) {
    for (auto row = order_.rbegin(); row != order_.rend() && !is_ranked_row(*row); ++row) {
      ranks_.insert(rank(*row));
    }
  }
  ++step_;
  if (!options_.steps_to_live) return;
  const int64_t oldest = step_ - *options_.steps_to_live;
  for (auto next = order_.begin(); next != order_.end();) {
    const int64_t row = *next++;  // evict() takes it out
    if (rows_[static_cast<std::size_t>(row)].last >= oldest) break;
    if (!is_held(row)) evict(row);
  }
  while (!candidate_order_.empty() && candidates_.at(candidate_order_.front()).last < oldest) {
    forget_oldest_candidate();
  }
}

void IdMap::touch(int64_t row, int64_t count) {
  if (is_ranked() && is_ranked_row(row)) ranks_.erase(rank(row));
  Row& what = rows_[static_cast<std::size_t>(row)];
  what.count += count;
  what.last = step_;
  order_.splice(order_.end(), order_, what.place);
}

void IdMap::see(std::span<const int64_t> ids) { see(ids, std::vector<int64_t>(ids.size(), 1)); }

// Those that have a row come first: none of them loses it to an id that stands before it.
void IdMap::see(std::span<const int64_t> ids, std::span<const int64_t> counts) {
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = find(ids[i]);
    row == kNoRow ? others.push_back(i) : touch(row, counts[i]);
  }
  for (const std::size_t i : others) {
    const int64_t row = find(ids[i]);
    row == kNoRow ? see_candidate(ids[i], counts[i]) : touch(row, counts[i]);
  }
}

void IdMap::see_candidate(int64_t id, int64_t count) {
  auto [found, is_new] = candidates_.try_emplace(id);
  Row& what = found->second;
  if (is_new) {
    what = {.id = id, .place = candidate_order_.insert(candidate_order_.end(), id)};
  } else {
    candidate_order_.splice(candidate_order_.end(), candidate_order_, what.place);
  }
  what.count += count;
  what.last = step_;
  if (what.count >= options_.admit_after) {
    if (const int64_t row = free_row(); row != kNoRow) {
      const Row admitted = what;
      candidate_order_.erase(what.place);
      candidates_.erase(found);
      place_row(row, admitted);
      fresh_.push_back({id, row});
      return;
    }
    ++refused_;
  }
  if (candidates() > options_.candidates) forget_oldest_candidate();
}

void IdMap::forget_oldest_candidate() {
  candidates_.erase(candidate_order_.front());
  candidate_order_.pop_front();
}

// What was seen in this step has gradients on their way.
int64_t IdMap::victim() const {
  if (options_.when_full == WhenFull::kRefuse) return kNoRow;
  if (is_ranked()) {
    for (const Rank& each : ranks_) {
      if (!is_held(std::get<2>(each))) return std::get<2>(each);
    }
    return kNoRow;
  }
  for (const int64_t row : order_) {
    if (!is_ranked_row(row)) return kNoRow;
    if (!is_held(row)) return row;
  }
  return kNoRow;
}

// The lowest one: memory that was never used stays unused as long as possible.
int64_t IdMap::free_row() {
  if (free_.empty() && static_cast<int64_t>(rows_.size()) < options_.capacity) {
    rows_.emplace_back();
    return static_cast<int64_t>(rows_.size()) - 1;
  }
  if (free_.empty()) {
    const int64_t row = victim();
    if (row == kNoRow) return kNoRow;
    evict(row);
  }
  const int64_t row = free_.top();
  free_.pop();
  return row;
}

void IdMap::evict(int64_t row) {
  if (is_ranked()) ranks_.erase(rank(row));
  const Row& what = rows_[static_cast<std::size_t>(row)];
  row_of_.erase(what.id);
  order_.erase(what.place);
  free_.push(row);
  ++evicted_;
}

void IdMap::place_row(int64_t row, const Row& what) {
  Row& to = rows_[static_cast<std::size_t>(row)];
  to = what;
  to.place = order_.insert(order_.end(), row);
  row_of_[what.id] = row;
  if (is_ranked() && is_ranked_row(row)) ranks_.insert(rank(row));
}

void IdMap::place_candidate(const Row& what) {
  Row& to = candidates_[what.id];
  to = what;
  to.place = candidate_order_.insert(candidate_order_.end(), what.id);
}

std::vector<int64_t> IdMap::ids() const {
  std::vector<int64_t> out;
  for (const int64_t row : order_) out.push_back(rows_[static_cast<std::size_t>(row)].id);
  return out;
}

int64_t IdMap::saved_size() const { return numbers_for(size(), candidates()); }
int64_t IdMap::most_saved() const { return numbers_for(options_.capacity, options_.candidates); }

IdMapState IdMap::state() const {
  IdMapState out{.step = step_, .evicted = evicted_, .refused = refused_};
  for (const int64_t row : order_) {
    const Row& what = rows_[static_cast<std::size_t>(row)];
    out.rows.push_back({.id = what.id, .row = row, .count = what.count, .last = what.last});
  }
  for (const int64_t id : candidate_order_) {
    const Row& what = candidates_.at(id);
    out.candidates.push_back({.id = id, .count = what.count, .last = what.last});
  }
  return out;
}

void IdMap::restore(const IdMapState& saved) {
  int64_t used = 0;
  for (const auto& each : saved.rows) {
    COHORT_CHECK_ARG(each.row < options_.capacity, "[id_map.restore] expected rows of a table of ",
                     options_.capacity, ", got row ", each.row,
                     ": the table that was saved was larger");
    used = std::max(used, each.row + 1);
  }
  IdMap made(options_);
  made.step_ = saved.step;
  made.evicted_ = saved.evicted;
  made.refused_ = saved.refused;
  made.rows_.resize(static_cast<std::size_t>(used));
  std::vector<bool> is_taken(static_cast<std::size_t>(used), false);
  for (const auto& each : saved.rows) {
    is_taken[static_cast<std::size_t>(each.row)] = true;
    made.place_row(each.row, {.id = each.id, .count = each.count, .last = each.last});
  }
  for (int64_t row = 0; row < used; ++row) {
    if (!is_taken[static_cast<std::size_t>(row)]) made.free_.push(row);
  }
  for (const auto& each : saved.candidates) {
    made.place_candidate({.id = each.id, .count = each.count, .last = each.last});
  }
  while (made.candidates() > options_.candidates) made.forget_oldest_candidate();
  *this = std::move(made);
}

}  // namespace cohort::internal::variables
