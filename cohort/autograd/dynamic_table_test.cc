// SPDX-License-Identifier: Apache-2.0
//
// Tables for ids of any size, against ordinary ones that have a row for every id.
#include "cohort/autograd/dynamic_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/autograd/test_row_methods.h"
#include "cohort/base/error.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/updater.h"

namespace cohort {
namespace {

namespace v = internal::variables;
using Ids = std::vector<int64_t>;
using Numbers = std::vector<double>;
using testing::row_methods;
using testing::RowMethod;
using update_rules::Rule;

constexpr int64_t kWidth = 3;

Tensor tensor_of(const Ids& ids) { return from_vector(ids, {static_cast<int64_t>(ids.size())}); }
Numbers numbers(const Tensor& t) { return to_vector<double>(t); }

/// Replicas with a table of one kind or the other, and what trains it.
class Trainer {
 public:
  using Lookup = std::function<Tensor(const Tensor& ids)>;

  explicit Trainer(int replicas, v::ParameterPlacement placement = v::ParameterPlacement::kMirrored)
      : group_({.replicas = replicas}) {
    v::LocalVariablesOptions options{.devices = {}, .placement = placement, .group = &group_};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    store_ = std::make_shared<v::LocalVariables>(options);
  }

  Variable make_rows(const Tensor& value) {
    const v::VariableCreatorScope scope(store_);
    return Variable(value, {.name = "rows"});
  }
  /// A table with so many rows.
  DynamicTable& grow(int64_t capacity, DynamicTableOptions options = {}) {
    rows_ = make_rows(zeros({capacity, kWidth}, kFloat64));
    table_ = DynamicTable(rows_, options);
    lookup_ = [this](const Tensor& ids) {
      table_.see(ids);
      return table_.lookup(ids);
    };
    return table_;
  }
  /// An ordinary one.
  void fix(const Tensor& rows) {
    rows_ = make_rows(rows);
    lookup_ = [this](const Tensor& ids) { return embedding_lookup(rows_, ids); };
  }
  void compile(const RowMethod& with) {
    rule_ = with.rule;
    updater_ = store_->make_updater({rows_}, {.slot_initial = with.slots, .lazy_rows = with.lazy});
  }
  void step(const Ids& ids) {
    ++step_;
    const auto count = static_cast<int64_t>(ids.size());
    const Tensor all = tensor_of(ids);
    const int replicas = group_.size();
    group_.run([&](int r) {
      const int64_t begin = count * r / replicas, end = count * (r + 1) / replicas;
      const Tensor mine = all.narrow(0, begin, end - begin);
      GradientTape tape;
      const Tensor rows = lookup_(mine);
      // An id's gradient depends on the id and its row.
      const Tensor pull = (mine.to(kFloat64).sin().unsqueeze(1) - rows).square().sum();
      updater_->apply(tape.gradient(pull, std::span(&rows_, 1)), rule_(step_));
    });
  }
  Numbers row(int64_t id) { return numbers(table_.lookup(tensor_of({id}))); }
  Numbers fixed_row(int64_t id) { return numbers(rows_.value()[id]); }

  const std::shared_ptr<v::LocalVariables>& store() const { return store_; }
  DynamicTable& table() { return table_; }
  v::Updater& updater() { return *updater_; }
  const Variable& rows() const { return rows_; }
  internal::runtime::ReplicaGroup& group() { return group_; }

 private:
  internal::runtime::ReplicaGroup group_;
  std::shared_ptr<v::LocalVariables> store_;
  Variable rows_;
  DynamicTable table_;
  Lookup lookup_;
  std::shared_ptr<v::Updater> updater_;
  std::function<Rule(int64_t)> rule_;
  int64_t step_ = 0;
};

Tensor first_rows(const DynamicTable& table, int64_t ids) {
  Tensor out = zeros({ids, kWidth}, kFloat64);
  for (int64_t id = 0; id < ids; ++id) out[id].copy_(table.first_row(id));
  return out;
}

std::vector<Ids> some_batches(int64_t ids, int count, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<Ids> out;
  for (int b = 0; b < count; ++b) {
    Ids& batch = out.emplace_back();
    for (std::size_t i = draw() % 9; i > 0; --i) {
      batch.push_back(static_cast<int64_t>(draw() % static_cast<uint64_t>(ids)));
    }
  }
  return out;
}

TEST(DynamicTable, TrainsAsATableWithARowForEveryId) {
  constexpr int64_t kIds = 20;
  for (const auto placement : {v::ParameterPlacement::kMirrored, v::ParameterPlacement::kCentral}) {
    for (const int replicas : {1, 2, 3}) {
      for (const RowMethod& with : row_methods()) {
        Trainer dynamic(replicas, placement), fixed(replicas, placement);
        const DynamicTable& table = dynamic.grow(kIds, {.seed = 7});
        fixed.fix(first_rows(table, kIds));
        dynamic.compile(with);
        fixed.compile(with);
        for (const Ids& batch : some_batches(kIds, 30, 3)) {
          dynamic.step(batch);
          fixed.step(batch);
        }
        for (int64_t id = 0; id < kIds; ++id) {
          EXPECT_EQ(dynamic.row(id), fixed.fixed_row(id)) << with.name << " " << replicas;
        }
        EXPECT_EQ(table.evicted(), 0);
        dynamic.store()->check_copies();
      }
    }
  }
}

// Which ids have rows, and what these are, does not depend on who brings which part of a batch.
TEST(DynamicTable, GivesRowsOnReplicasAsOnOne) {
  const DynamicTableOptions options{.admit_after = 2, .steps_to_live = 4};
  Trainer one(1), three(3);
  for (Trainer* each : {&one, &three}) {
    each->grow(5, options);
    each->compile(row_methods()[1]);
  }
  for (const Ids& batch : some_batches(12, 60, 4)) {
    one.step(batch);
    three.step(batch);
    ASSERT_EQ(one.table().ids(), three.table().ids());
  }
  EXPECT_GT(one.table().evicted(), 5);
  for (const int64_t id : one.table().ids()) {
    const Numbers a = one.row(id), b = three.row(id);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  }
  three.store()->check_copies();
}

TEST(DynamicTable, AFirstRowDependsOnSeedAndIdAlone) {
  Trainer a(1), b(2);
  const DynamicTable& first = a.grow(4, {.seed = 5, .minval = -1, .maxval = 2});
  const DynamicTable& second = b.grow(9, {.admit_after = 3, .seed = 5, .minval = -1, .maxval = 2});
  for (const int64_t id : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_EQ(numbers(first.first_row(id)), numbers(second.first_row(id)));
    for (const double x : numbers(first.first_row(id))) {
      EXPECT_GE(x, -1);
      EXPECT_LT(x, 2);
    }
  }
  EXPECT_NE(numbers(first.first_row(1)), numbers(first.first_row(2)));
  Trainer c(1);
  EXPECT_NE(numbers(first.first_row(1)),
            numbers(c.grow(4, {.seed = 6, .minval = -1, .maxval = 2}).first_row(1)));
}

TEST(DynamicTable, AnIdWithoutARowDoesNotTrain) {
  for (const bool with_default : {false, true}) {
    Trainer trainer(1);
    DynamicTableOptions options{.admit_after = 3};
    if (with_default) options.default_value = 0.25;
    const DynamicTable& table = trainer.grow(8, options);
    trainer.compile(row_methods()[0]);
    const Numbers begin = numbers(table.first_row(5));
    const Numbers without = with_default ? Numbers(kWidth, 0.25) : begin;
    trainer.step({5, 6, 6, 6});
    trainer.step({5});
    EXPECT_EQ(trainer.row(5), without);
    EXPECT_NE(trainer.row(6), numbers(table.first_row(6)));
    EXPECT_EQ(table.candidates(), 1);
    trainer.step({5});  // the third time
    EXPECT_NE(trainer.row(5), begin);
    EXPECT_NE(trainer.row(5), without);
  }
}

// What SGD makes of one step from the first row says that nothing of before is left.
TEST(DynamicTable, AnIdThatComesAgainBeginsAnew) {
  for (const RowMethod& with : row_methods()) {
    for (const int replicas : {1, 2}) {
      Trainer trainer(replicas), untouched(replicas);
      for (Trainer* each : {&trainer, &untouched}) each->grow(2);
      trainer.compile(with);
      untouched.compile(with);
      for (const Ids& batch : {Ids{1, 2}, Ids{1, 2}, Ids{3, 4}}) trainer.step(batch);
      EXPECT_EQ(trainer.table().ids(), (Ids{3, 4})) << "the rows of 1 and 2 are taken";
      EXPECT_EQ(trainer.table().evicted(), 2);
      for (int i = 0; i < 3; ++i) untouched.step({8, 9});
      // Steps count alike: 1 comes again in the fourth one, and in the other for the first time.
      trainer.step({1, 1});
      untouched.step({1, 1});
      EXPECT_EQ(trainer.row(1), untouched.row(1)) << with.name;
      for (int s = 0; s < trainer.updater().slot_count(); ++s) {
        const auto slots_of = [&](Trainer& of) {
          const Numbers all = numbers(of.updater().slot(0, s));
          const Numbers own = numbers(of.rows().value());
          const Numbers mine = of.row(1);
          const auto at =
              std::search(own.begin(), own.end(), mine.begin(), mine.end()) - own.begin();
          return Numbers(all.begin() + at, all.begin() + at + kWidth);
        };
        EXPECT_EQ(slots_of(trainer), slots_of(untouched)) << with.name << " " << s;
      }
    }
  }
}

TEST(DynamicTable, KeepsTheRowsOfABatchUntilItsUpdate) {
  Trainer trainer(1);
  const DynamicTable& table = trainer.grow(2);
  trainer.compile(row_methods()[0]);
  table.see(tensor_of({1, 2}));
  table.see(tensor_of({3}));  // no update was made
  EXPECT_EQ(table.ids(), (Ids{1, 2}));
  EXPECT_EQ(table.refused(), 1);
  trainer.step({2});
  trainer.step({3});
  EXPECT_EQ(table.ids(), (Ids{2, 3}));
}

// A gradient of what was looked up alone is its id's, too.
TEST(DynamicTable, KeepsTheRowsOfLookupsUntilTheirUpdate) {
  for (const WhenFull how : {WhenFull::kLeastRecentlyUsed, WhenFull::kLeastFrequentlyUsed}) {
    for (const int updates : {0, 1}) {  // between see(1) and its lookup
      Trainer trainer(1);
      const DynamicTable& table = trainer.grow(1, {.when_full = how, .steps_to_live = 1});
      trainer.compile(row_methods()[0]);
      table.see(tensor_of({1}));
      for (int i = 0; i < updates; ++i) trainer.step({});
      const Numbers before = numbers(table.first_row(1));
      GradientTape tape;
      const Tensor rows = table.lookup(tensor_of({1}));
      table.see(tensor_of({9}));
      EXPECT_EQ(table.ids(), Ids{1});
      const Variable weights = trainer.rows();
      trainer.updater().apply(tape.gradient(rows.sum(), std::span(&weights, 1)),
                              update_rules::SgdStep{.learning_rate = 1});
      EXPECT_NEAR(trainer.row(1)[0], before[0] - 1, 1e-12);
    }
  }
}

TEST(DynamicTable, LooksUpAnyShape) {
  Trainer trainer(1);
  const DynamicTable& table = trainer.grow(4);
  table.see(tensor_of({1, 2}));
  const Tensor ids = from_vector<int64_t>({1, 9, 2, 1, 1, 9}, {2, 3});
  const Tensor out = table.lookup(ids);
  EXPECT_EQ(shape_of(out), (Shape{2, 3, kWidth}));
  EXPECT_EQ(numbers(out[0][1]), numbers(table.first_row(9)));
  EXPECT_EQ(numbers(out[1][0]), numbers(table.first_row(1)));
  EXPECT_EQ(shape_of(table.lookup(zeros({0}, kInt64))), (Shape{0, kWidth}));
  EXPECT_EQ(shape_of(table.lookup(zeros({}, kInt32))), Shape{kWidth});
  EXPECT_EQ(table.size(), 2) << "lookups give no rows";
}

TEST(DynamicTable, GoesOnFromACheckpoint) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "checkpoint";
  const DynamicTableOptions options{
      .admit_after = 2, .when_full = WhenFull::kLeastFrequentlyUsed, .steps_to_live = 6};
  const std::vector<Ids> batches = some_batches(12, 60, 9);
  for (const int replicas : {1, 2}) {
    Trainer whole(1), restored(replicas);
    for (Trainer* each : {&whole, &restored}) {
      each->grow(4, options);
      each->compile(row_methods()[1]);
    }
    const auto checkpoint_of = [](Trainer& of) {
      return Checkpoint({{"rows", of.rows()}, {"ids", of.table()}});
    };
    for (int i = 0; i < 30; ++i) whole.step(batches[static_cast<std::size_t>(i)]);
    checkpoint_of(whole).save(path);
    restored.step({3, 3, 4, 4});  // what it has is replaced
    checkpoint_of(restored).restore(path);
    restored.updater().set_slot(0, 0, whole.updater().slot(0, 0));
    for (int i = 30; i < 60; ++i) {
      whole.step(batches[static_cast<std::size_t>(i)]);
      restored.step(batches[static_cast<std::size_t>(i)]);
      ASSERT_EQ(whole.table().ids(), restored.table().ids()) << i;
    }
    EXPECT_EQ(whole.table().evicted(), restored.table().evicted());
    EXPECT_EQ(whole.table().candidates(), restored.table().candidates());
    for (const int64_t id : whole.table().ids()) {
      const Numbers a = whole.row(id), b = restored.row(id);
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
    }
  }
}

TEST(DynamicTable, HasItsIdsAsAVariable) {
  Trainer a(1), b(1), small(1);
  const DynamicTable& table = a.grow(4);
  table.see(tensor_of({7, -8, 7}));
  const DynamicTable& other = b.grow(4);
  EXPECT_EQ(table.map().shape(), other.map().shape());
  other.map().assign(table.map().value());
  EXPECT_EQ(other.ids(), (Ids{7, -8}));
  EXPECT_THROW(other.map().assign(ones(other.map().shape(), kInt64)), DataLoss);
  EXPECT_EQ(other.ids(), (Ids{7, -8}));
  EXPECT_THROW(small.grow(2).map().assign(table.map().value()), InvalidArgument);
}

TEST(DynamicTable, RefusesWhatItCannotDo) {
  Trainer trainer(2);
  const DynamicTable& table = trainer.grow(4);
  testing::expect_error<InvalidArgument>({"[dynamic_table.see]", "int64", "float32"},
                                         [&] { table.see(zeros({2})); });
  testing::expect_error<InvalidArgument>({"[dynamic_table.lookup]", "int64", "float32"},
                                         [&] { table.lookup(zeros({2})); });
  const auto made = [&](const Variable& rows, DynamicTableOptions options) {
    DynamicTable{rows, options};
  };
  EXPECT_THROW(made(trainer.rows(), {.admit_after = 0}), InvalidArgument);
  EXPECT_THROW(made(trainer.rows(), {.candidates = -1}), InvalidArgument);
  EXPECT_THROW(made(trainer.rows(), {.steps_to_live = 0}), InvalidArgument);
  EXPECT_THROW(made(trainer.rows(), {.minval = 1, .maxval = 0}), InvalidArgument);
  EXPECT_THROW(made(trainer.make_rows(zeros({0, 2})), {}), InvalidArgument);
  EXPECT_THROW(made(trainer.make_rows(zeros({})), {}), InvalidArgument);
  EXPECT_THROW(made(trainer.make_rows(zeros({2, 2}, kInt64)), {}), InvalidArgument);
  testing::expect_error<FailedPrecondition>({"[dynamic_table]", "\"rows\"", "another table"},
                                            [&] { made(trainer.rows(), {}); });
  EXPECT_THROW(DynamicTable().size(), FailedPrecondition);
  // Of another strategy.
  Trainer other(3);
  EXPECT_THROW(other.group().run([&](int) { table.see(tensor_of({1})); }), FailedPrecondition);
  const v::LocalVariablesOptions two_workers{.worker = 0, .workers = 2, .owner = "Both"};
  const auto store = std::make_shared<v::LocalVariables>(two_workers);
  testing::expect_error<Unimplemented>({"[dynamic_table]", "Both", "2 workers"}, [&] {
    const v::VariableCreatorScope scope(store);
    made(Variable(zeros({2, 2}), {.trainable = false}), {});
  });
}

}  // namespace
}  // namespace cohort
