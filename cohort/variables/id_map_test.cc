// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/id_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::internal::variables {
namespace {

constexpr int64_t kNoRow = IdMap::kNoRow;

void step(IdMap& map, const std::vector<int64_t>& ids) {
  map.begin_step();
  map.see(ids);
}

std::vector<int64_t> rows_of(const IdMap& map, const std::vector<int64_t>& ids) {
  std::vector<int64_t> out;
  for (const int64_t id : ids) out.push_back(map.find(id));
  return out;
}

std::vector<int64_t> fresh_ids(IdMap& map) {
  std::vector<int64_t> out;
  for (const IdMap::Fresh& each : map.take_fresh()) out.push_back(each.id);
  return out;
}

using Ids = std::vector<int64_t>;

TEST(IdMap, GivesRowsInTheOrderInWhichIdsAreSeenFirst) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  IdMap map({.capacity = 4});
  step(map, {77, kLowest, 77, -1});
  EXPECT_EQ(rows_of(map, {77, kLowest, -1, 5}), (Ids{0, 1, 2, kNoRow}));
  EXPECT_EQ(fresh_ids(map), (Ids{77, kLowest, -1}));
  step(map, {-1, 0});
  EXPECT_EQ(fresh_ids(map), Ids{0});
  EXPECT_EQ(map.size(), 4);
}

TEST(IdMap, AdmitsWhatWasSeenOftenEnough) {
  IdMap map({.capacity = 4, .admit_after = 3});
  step(map, {7, 8, 7});
  EXPECT_EQ(rows_of(map, {7, 8}), (Ids{kNoRow, kNoRow}));
  EXPECT_EQ(map.candidates(), 2);
  step(map, {8, 7});
  EXPECT_EQ(rows_of(map, {7, 8}), (Ids{0, kNoRow}));
  EXPECT_EQ(map.candidates(), 1);
  step(map, {9, 9, 9, 9});
  EXPECT_EQ(map.find(9), 1) << "in the call in which it is seen often enough";
}

TEST(IdMap, WithoutEvictionIdsBeyondTheCapacityHaveNoRow) {
  IdMap map({.capacity = 2});
  step(map, {1, 2, 3});
  step(map, {3});
  EXPECT_EQ(rows_of(map, {1, 2, 3}), (Ids{0, 1, kNoRow}));
  EXPECT_EQ(map.refused(), 2);
  EXPECT_EQ(map.evicted(), 0);
}

TEST(IdMap, EvictsTheLeastRecentlyUsed) {
  IdMap map({.capacity = 2, .when_full = WhenFull::kLeastRecentlyUsed});
  step(map, {1, 2});
  EXPECT_EQ(fresh_ids(map), (Ids{1, 2}));
  step(map, {1});
  step(map, {3});
  EXPECT_EQ(rows_of(map, {1, 2, 3}), (Ids{0, kNoRow, 1}));
  EXPECT_EQ(map.evicted(), 1);
  EXPECT_EQ(fresh_ids(map), Ids{3});
}

TEST(IdMap, EvictsTheLeastFrequentlyUsed) {
  IdMap map({.capacity = 2, .when_full = WhenFull::kLeastFrequentlyUsed});
  step(map, {1, 2, 1});
  step(map, {2});
  step(map, {2});
  step(map, {3});
  EXPECT_EQ(rows_of(map, {1, 2, 3}), (Ids{kNoRow, 1, 0}));
  step(map, {4});
  EXPECT_EQ(rows_of(map, {2, 3, 4}), (Ids{1, kNoRow, 0}));
}

// Their gradients are on their way.
TEST(IdMap, NeverTakesARowOfTheSameStep) {
  for (const WhenFull how : {WhenFull::kLeastRecentlyUsed, WhenFull::kLeastFrequentlyUsed}) {
    IdMap map({.capacity = 2, .when_full = how});
    step(map, {1, 2});
    step(map, {3, 2, 4});  // 2 stands behind 3, and keeps its row
    EXPECT_EQ(rows_of(map, {1, 2, 3, 4}), (Ids{kNoRow, 1, 0, kNoRow}));
    EXPECT_EQ(map.refused(), 1);
    map.see(Ids{4});
    EXPECT_EQ(map.find(4), kNoRow) << "still the same step";
    step(map, {4});
    EXPECT_NE(map.find(4), kNoRow);
  }
}

TEST(IdMap, ForgetsWhatWasNotSeenForTooLong) {
  IdMap map({.capacity = 4, .admit_after = 2, .steps_to_live = 2});
  step(map, {1, 1, 2, 2, 3});  // step 1
  step(map, {2});
  step(map, {});
  EXPECT_EQ(rows_of(map, {1, 2}), (Ids{0, 1}));
  map.begin_step();  // step 4: 1 and 3 were not seen in steps 2 to 4
  EXPECT_EQ(rows_of(map, {1, 2}), (Ids{kNoRow, 1}));
  EXPECT_EQ(map.candidates(), 0);
  map.see(Ids{3});
  EXPECT_EQ(map.find(3), kNoRow) << "it is counted from the beginning";
  map.see(Ids{1, 1});
  EXPECT_EQ(map.find(1), 0) << "the lowest free row";
}

TEST(IdMap, CountsAsManyCandidatesAsItMay) {
  IdMap map({.capacity = 8, .admit_after = 2, .candidates = 2});
  step(map, {1, 2, 3});
  EXPECT_EQ(map.candidates(), 2);
  map.see(Ids{1});
  EXPECT_EQ(map.find(1), kNoRow) << "it was forgotten";
  map.see(Ids{3});
  EXPECT_EQ(map.find(3), 0);
}

TEST(IdMap, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(IdMap({.capacity = 0}), InvalidArgument);
  EXPECT_THROW(IdMap({.capacity = 1, .admit_after = 0}), InvalidArgument);
  EXPECT_THROW(IdMap({.capacity = 1, .candidates = -1}), InvalidArgument);
  EXPECT_THROW(IdMap({.capacity = 1, .steps_to_live = 0}), InvalidArgument);
}

// What it should do, in the simplest words: everything is looked for by a pass over all.
class SlowMap {
 public:
  explicit SlowMap(const IdMapOptions& options) : options_(options) {}

  void step(const Ids& ids) {
    ++step_;
    const auto is_over = [&](const auto& each) {
      return options_.steps_to_live && step_ - each.second.last > *options_.steps_to_live;
    };
    std::erase_if(rows_, is_over);
    std::erase_if(candidates_, is_over);
    for (const int64_t id : ids) {
      if (rows_.contains(id)) see(rows_[id]);
    }
    const std::map<int64_t, Entry> before = rows_;
    for (const int64_t id : ids) {
      if (before.contains(id)) continue;
      if (rows_.contains(id)) {
        see(rows_[id]);
        continue;
      }
      Entry& entry = candidates_[id];
      see(entry);
      if (entry.count >= options_.admit_after && make_room()) {
        entry.row = lowest_free_row();
        rows_[id] = entry;
        candidates_.erase(id);
      } else if (static_cast<int64_t>(candidates_.size()) > options_.candidates) {
        candidates_.erase(std::min_element(
            candidates_.begin(), candidates_.end(),
            [](const auto& a, const auto& b) { return a.second.when < b.second.when; }));
      }
    }
  }
  std::set<int64_t> ids() const {
    std::set<int64_t> out;
    for (const auto& [id, entry] : rows_) out.insert(id);
    return out;
  }

 private:
  struct Entry {
    int64_t count = 0, last = 0, when = 0, row = 0;
  };
  void see(Entry& entry) {
    ++entry.count;
    entry.last = step_;
    entry.when = ++now_;
  }
  int64_t lowest_free_row() const {
    std::set<int64_t> taken;
    for (const auto& [id, entry] : rows_) taken.insert(entry.row);
    int64_t row = 0;
    while (taken.contains(row)) ++row;
    return row;
  }
  bool make_room() {
    if (static_cast<int64_t>(rows_.size()) < options_.capacity) return true;
    auto worst = rows_.end();
    const bool by_count = options_.when_full == WhenFull::kLeastFrequentlyUsed;
    if (options_.when_full == WhenFull::kRefuse) return false;
    for (auto each = rows_.begin(); each != rows_.end(); ++each) {
      if (each->second.last == step_) continue;
      const auto key = [&](const Entry& e) {
        return std::tuple(by_count ? e.count : 0, by_count ? e.last : e.when, e.row);
      };
      if (worst == rows_.end() || key(each->second) < key(worst->second)) worst = each;
    }
    if (worst == rows_.end()) return false;
    rows_.erase(worst);
    return true;
  }

  IdMapOptions options_;
  int64_t step_ = 0, now_ = 0;
  std::map<int64_t, Entry> rows_, candidates_;
};

TEST(IdMap, DoesWhatASimpleOneDoes) {
  std::mt19937_64 draw(5);
  for (int round = 0; round < 200; ++round) {
    const auto how = static_cast<WhenFull>(round % 3);
    IdMapOptions options{.capacity = 1 + static_cast<int64_t>(draw() % 9),
                         .admit_after = 1 + static_cast<int64_t>(draw() % 3),
                         .candidates = 1 + static_cast<int64_t>(draw() % 9),
                         .when_full = how};
    if (round % 2 == 0) options.steps_to_live = 1 + static_cast<int64_t>(draw() % 4);
    IdMap map(options);
    SlowMap slow(options);
    for (int s = 0; s < 60; ++s) {
      Ids ids;
      for (std::size_t i = draw() % 6; i > 0; --i) ids.push_back(static_cast<int64_t>(draw() % 16));
      step(map, ids);
      slow.step(ids);
      const Ids now = map.ids();
      ASSERT_EQ(std::set<int64_t>(now.begin(), now.end()), slow.ids()) << round << " " << s;
      std::set<int64_t> rows;
      for (const int64_t id : now) rows.insert(map.find(id));
      ASSERT_EQ(rows.size(), now.size()) << "a row for each";
      if (s % 7 != 0) continue;
      IdMap again(options);
      again.restore(map.save());
      ASSERT_EQ(again.save(), map.save());
      map = std::move(again);  // and on with that
    }
  }
}

TEST(IdMap, CountsOfIdsAreAsGoodAsIdsThatAreRepeated) {
  const Ids ids = {5, -7, 5, 9, 5, -7};
  const CountedIds each = counted(ids);
  EXPECT_EQ(each.ids, (Ids{5, -7, 9}));
  EXPECT_EQ(each.counts, (Ids{3, 2, 1}));
  EXPECT_EQ(each.position, (Ids{0, 1, 0, 2, 0, 1}));
  IdMap map({.capacity = 4, .admit_after = 2});
  for (const int64_t row : {0, 1}) {
    map.begin_step();
    map.see(each.ids, each.counts);
    EXPECT_EQ(rows_of(map, {5, -7, 9}), (Ids{0, 1, row == 0 ? kNoRow : 2}));
  }
  EXPECT_EQ(map.state().rows[0].count, 6);
  EXPECT_EQ(numbers_of(state_of(map.save())), map.save());
  EXPECT_EQ(static_cast<int64_t>(map.save().size()), map.saved_size());
}

TEST(IdMap, RefusesStatesThatItCannotHaveSaved) {
  IdMap map({.capacity = 4, .admit_after = 2});
  step(map, {1, 1, 2, 2, 3});
  const Ids good = map.save();
  const auto restored = [&](const Ids& numbers) {
    IdMap other({.capacity = 4, .admit_after = 2});
    other.restore(numbers);
  };
  restored(good);
  EXPECT_THROW(restored({}), DataLoss);
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(restored({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}),
                 DataLoss);
  }
  const auto changed = [&](std::size_t at, int64_t number) {
    Ids numbers = good;
    numbers[at] = number;
    return numbers;
  };
  EXPECT_THROW(restored(changed(0, 9)), DataLoss);
  for (const std::size_t at : {1, 2, 12}) {
    EXPECT_THROW(restored(changed(at, std::numeric_limits<int64_t>::max())), DataLoss) << at;
  }
  EXPECT_THROW(restored(changed(4, std::numeric_limits<int64_t>::max())), DataLoss);
  EXPECT_THROW(restored(changed(5, -1)), DataLoss);
  EXPECT_THROW(restored(changed(10, 1)), DataLoss) << "an id twice";
  EXPECT_THROW(restored(changed(11, 0)), DataLoss) << "a row twice";
  EXPECT_THROW(restored(changed(11, -1)), DataLoss);
  EXPECT_THROW(restored(changed(13, 2)), DataLoss) << "seen in a step to come";
  EXPECT_THROW(restored(changed(11, 4)), InvalidArgument) << "of a larger table";
  Ids filled = good;
  filled.resize(30, 0);
  restored(filled);
  filled.back() = 1;
  EXPECT_THROW(restored(filled), DataLoss);
  IdMap same({.capacity = 4, .admit_after = 2});
  step(same, {9, 9});
  const Ids before = same.save();
  EXPECT_THROW(same.restore(changed(11, 0)), DataLoss);
  EXPECT_EQ(same.save(), before);
}

}  // namespace
}  // namespace cohort::internal::variables
