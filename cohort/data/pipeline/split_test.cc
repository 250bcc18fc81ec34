// SPDX-License-Identifier: Apache-2.0
//
// Batches in pieces for replicas.
#include <gtest/gtest.h>

#include <thread>

#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"

namespace cohort {
namespace {

using internal::data::Piece;
using internal::data::PieceChoice;
using internal::data::SplitPlan;
using internal::data::SplitRule;
using Numbers = std::vector<int64_t>;
using Step = std::vector<Numbers>;

Dataset split(const Dataset& dataset, const SplitPlan& plan) {
  return Dataset(internal::data::make_split_node(dataset.node(), plan, "[split]"));
}

Dataset split(const Dataset& dataset, int replicas, SplitRule rule = SplitRule::kEven) {
  return split(dataset, SplitPlan{.replicas = replicas, .rule = rule});
}

std::vector<Step> steps(const Dataset& dataset, const SplitPlan& plan) {
  std::vector<Step> out;
  for (const Element& pieces : split(dataset, plan)) {
    Step step;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].rows(),
                static_cast<int64_t>(to_vector<int64_t>(pieces[i].tensor()).size()));
      EXPECT_EQ(pieces[i].tensor().scalar_type(), kInt64);
      step.push_back(to_vector<int64_t>(pieces[i].tensor()));
    }
    out.push_back(step);
  }
  return out;
}

std::vector<Step> steps(const Dataset& dataset, int replicas, SplitRule rule = SplitRule::kEven) {
  return steps(dataset, SplitPlan{.replicas = replicas, .rule = rule});
}

// The same numbers where rows are in memory, where batches are stacked, and through prefetch.
std::vector<Dataset> ranges(int64_t n, int64_t batch) {
  auto rows = Dataset::range(n).batch(batch);
  auto elements = Dataset::range(n).map([](const Tensor& x) { return x; }).batch(batch);
  return {rows, elements, rows.prefetch(2), elements.cache().take(-1)};
}

TEST(Split, EveryBatchInPiecesAsEqualAsCanBe) {
  for (const Dataset& ds : ranges(10, 4)) {
    EXPECT_EQ(steps(ds, 2), (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {9}}}));
    EXPECT_EQ(steps(ds, 3)[0], (Step{{0, 1}, {2}, {3}}));
  }
  for (const Dataset& ds : ranges(9, 4)) EXPECT_EQ(steps(ds, 2)[2], (Step{{8}, {}}));
  for (const Dataset& ds : ranges(14, 7)) {
    EXPECT_EQ(steps(ds, 2),
              (std::vector<Step>{{{0, 1, 2, 3}, {4, 5, 6}}, {{7, 8, 9, 10}, {11, 12, 13}}}));
  }
}

TEST(Split, RebatchGivesAPartialBatchToTheFirstPieces) {
  for (const Dataset& ds : ranges(10, 4)) {
    EXPECT_EQ(steps(ds, 2, SplitRule::kRebatch),
              (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8, 9}, {}}}));
  }
  for (const Dataset& ds : ranges(9, 7)) {
    EXPECT_EQ(steps(ds, 2, SplitRule::kRebatch)[1], (Step{{7, 8}, {}}));
  }
  // The size of a full batch is not known: even.
  const auto ds = Dataset::range(10).batch(4).map([](const Tensor& x) { return x; });
  EXPECT_EQ(steps(ds, 2, SplitRule::kRebatch)[2], (Step{{8}, {9}}));
}

TEST(Split, FewerRowsThanReplicas) {
  for (const SplitRule rule : {SplitRule::kEven, SplitRule::kRebatch}) {
    for (const Dataset& ds : ranges(2, 2))
      EXPECT_EQ(steps(ds, 4, rule)[0], (Step{{0}, {1}, {}, {}}));
    for (const Dataset& ds : ranges(1, 8)) EXPECT_EQ(steps(ds, 3, rule)[0], (Step{{0}, {}, {}}));
  }
}

TEST(Split, Weights) {
  using internal::data::weighted_sizes;
  EXPECT_EQ(weighted_sizes(8, std::vector<double>({3, 1})), (Numbers{6, 2}));
  EXPECT_EQ(weighted_sizes(10, std::vector<double>({1, 1, 1})), (Numbers{4, 3, 3}));
  EXPECT_EQ(weighted_sizes(1, std::vector<double>({1, 3})), (Numbers{0, 1}));
  EXPECT_EQ(weighted_sizes(3, std::vector<double>({1, 1, 2})),
            (Numbers{1, 1, 1}));  // Shares .75, .75, 1.5.
  EXPECT_EQ(weighted_sizes(0, std::vector<double>({1, 2})), (Numbers{0, 0}));
  EXPECT_EQ(weighted_sizes(7, std::vector<double>({1e-300, 1})), (Numbers{0, 7}));
  // Nothing is lost or gained, whatever the rounding.
  for (int64_t rows = 0; rows < 200; ++rows) {
    int64_t sum = 0;
    for (int64_t size : weighted_sizes(rows, std::vector<double>({0.1, 0.2, 0.3, 1.7, 1e-9})))
      sum += size;
    EXPECT_EQ(sum, rows);
  }
  const SplitPlan plan{.replicas = 2, .weights = {3, 1}};
  EXPECT_EQ(steps(Dataset::range(10).batch(4), plan),
            (std::vector<Step>{{{0, 1, 2}, {3}}, {{4, 5, 6}, {7}}, {{8, 9}, {}}}));
}

TEST(Split, D01_SizesOfWorkersWithBatchesOfTheirOwn) {
  const auto sizes = [](int64_t rows, int64_t full, const SplitPlan& plan) {
    Numbers out;
    for (const Piece& piece : internal::data::pieces_of(rows, full, plan))
      out.push_back(piece.rows);
    return out;
  };
  const auto worker = [](int replicas, int pipelines, int index) {
    return SplitPlan{.replicas = replicas, .pipelines = pipelines, .index = index};
  };
  EXPECT_EQ(sizes(7, 7, worker(2, 2, 0)), (Numbers{2, 2, 2, 1}));
  EXPECT_EQ(sizes(7, 7, worker(2, 2, 1)), (Numbers{2, 1, 2, 2}));
  EXPECT_EQ(sizes(4, 4, worker(1, 3, 0)), (Numbers{2, 1, 1}));
  EXPECT_EQ(sizes(4, 4, worker(1, 3, 1)), (Numbers{1, 1, 2}));
  EXPECT_EQ(sizes(4, 4, worker(1, 3, 2)), (Numbers{1, 2, 1}));
  EXPECT_EQ(sizes(5, 5, worker(3, 1, 0)), (Numbers{2, 2, 1}));
  EXPECT_EQ(sizes(2, 2, worker(4, 1, 0)), (Numbers{1, 1, 0, 0}));
  // A partial batch is no more steps than it has rows for; within a step it is even, or not.
  EXPECT_EQ(sizes(6, 8, worker(2, 2, 0)), (Numbers{2, 2, 1, 1}));
  EXPECT_EQ(sizes(2, 8, worker(2, 2, 1)), (Numbers{1, 1}));
  SplitPlan rebatch = worker(2, 2, 0);
  rebatch.rule = SplitRule::kRebatch;
  EXPECT_EQ(sizes(6, 8, rebatch), (Numbers{2, 2, 2, 0}));
  EXPECT_EQ(sizes(2, 8, rebatch), (Numbers{2, 0}));
}

TEST(Split, WorkersWithBatchesOfTheirOwnTakeAFewPiecesAStep) {
  for (const Dataset& ds : ranges(10, 7)) {
    EXPECT_EQ(steps(ds, {.replicas = 2, .pipelines = 2, .index = 1}),
              (std::vector<Step>{{{0, 1}, {2}}, {{3, 4}, {5, 6}}, {{7, 8}, {9}}}));
  }
}

TEST(Split, WorkersThatShareBatchesTakeEveryNthPieceOrNeighbours) {
  const Dataset ds = Dataset::range(11).batch(8);
  const auto worker = [&](int index, PieceChoice choice) {
    return steps(ds, {.replicas = 2, .pipelines = 2, .index = index, .choice = choice});
  };
  EXPECT_EQ(worker(0, PieceChoice::kEveryNth), (std::vector<Step>{{{0, 1}, {4, 5}}, {{8}, {10}}}));
  EXPECT_EQ(worker(1, PieceChoice::kEveryNth), (std::vector<Step>{{{2, 3}, {6, 7}}, {{9}, {}}}));
  EXPECT_EQ(worker(0, PieceChoice::kConsecutive),
            (std::vector<Step>{{{0, 1}, {2, 3}}, {{8}, {9}}}));
  EXPECT_EQ(worker(1, PieceChoice::kConsecutive),
            (std::vector<Step>{{{4, 5}, {6, 7}}, {{10}, {}}}));
  // A weight belongs to a replica, wherever its piece is in the batch.
  for (const PieceChoice choice : {PieceChoice::kEveryNth, PieceChoice::kConsecutive}) {
    const SplitPlan plan{
        .replicas = 2, .pipelines = 2, .index = 1, .choice = choice, .weights = {1, 2, 1, 4}};
    const Step step = steps(ds, plan)[0];
    EXPECT_EQ(step[0].size(), 1U);
    EXPECT_EQ(step[1].size(), 4U);
  }
}

TEST(Split, EmptyPiecesKeepShapesAndDtypes) {
  auto ds = Dataset::from_tensor_slices({zeros({3, 2, 5}), arange(3, kInt32)}).batch(2);
  auto it = split(ds, 2).make_iterator();
  it.next();
  const Element pieces = it.next().value_or(Element());
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[1].rows(), 0);
  EXPECT_EQ(pieces[1].size(), 2U);
  EXPECT_EQ(pieces[1].spec().to_string(), "(float32[0,2,5], int32[0])");
  EXPECT_EQ(shape_of(pieces[1][0]), (Shape{0, 2, 5}));
  EXPECT_EQ(pieces[1][1].tensor().scalar_type(), kInt32);
}

TEST(Split, EveryThreadGathersItsOwnPiece) {
  constexpr int64_t kRows = 1000;
  auto ds = Dataset::from_tensor_slices({arange(kRows).mul(3), arange(kRows)})
                .shuffle(kRows, {.seed = 1})
                .batch(100);
  int64_t seen = 0;
  for (const Element& pieces : split(ds, 4)) {
    std::vector<int64_t> sums(pieces.size());
    {
      std::vector<std::jthread> replicas;
      for (std::size_t r = 0; r < pieces.size(); ++r) {
        replicas.emplace_back([&pieces, &sums, r] {
          auto [x, y] = pieces[r].as<Tensor, Tensor>();
          sums[r] = x.equal(y.mul(3)) ? y.size(0) : -1;
        });
      }
    }
    for (int64_t sum : sums) {
      EXPECT_EQ(sum, 25);
      seen += sum;
    }
  }
  EXPECT_EQ(seen, kRows);
}

TEST(Split, OnePieceReadByManyThreadsIsGatheredOnce) {
  auto it = Dataset::range(100).batch(100).make_iterator();
  Element batch = *it.next();
  std::vector<const void*> seen(4);
  {
    std::vector<std::jthread> readers;
    for (auto& data : seen) {
      readers.emplace_back([&] { data = batch.tensor().const_data_ptr(); });
    }
  }
  for (const void* data : seen) EXPECT_EQ(data, seen[0]);
}

TEST(Split, UnbatchedElementsAreRefused) {
  EXPECT_THROW(split(Dataset::range(4), 2), InvalidArgument);
  // Of elements whose shape is not known only a look tells; the next batch is looked at, too.
  auto it = split(Dataset::range(2).map([](const Tensor& x) { return x; }), 2).make_iterator();
  EXPECT_THROW(it.next(), InvalidArgument);
  EXPECT_THROW(it.next(), InvalidArgument);
  EXPECT_FALSE(it.next());
}

TEST(Split, ComponentsOfUnlikeRowsAreRefused) {
  const auto few = Dataset::range(16).batch(16);
  const auto many = Dataset::range(20).batch(20);
  for (const Dataset& ds : {Dataset::zip({few, many}), Dataset::zip({many, few}),
                            Dataset::zip({few, Dataset::zip({few, many})})}) {
    auto it = split(ds, 2).make_iterator();
    EXPECT_THROW(it.next(), InvalidArgument);
    EXPECT_FALSE(it.next());
  }
}

std::vector<Numbers> rounds(const std::vector<Dataset>& inputs, int replicas, bool fill) {
  std::vector<internal::data::NodePtr> nodes;
  for (const Dataset& input : inputs) nodes.push_back(input.node());
  const Dataset ds(
      internal::data::make_round_node(nodes, inputs[0].element_spec(), replicas, fill));
  std::vector<Numbers> out;
  for (const Element& parts : ds) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      out.push_back(to_vector<int64_t>(parts[i].tensor()));
    }
  }
  if (ds.cardinality() >= 0) {
    EXPECT_EQ(ds.cardinality() * replicas, static_cast<int64_t>(out.size()));
  }
  return out;
}

TEST(Rounds, ReplicasTakeTurns) {
  const Dataset ds = Dataset::range(9).batch(2);
  EXPECT_EQ(rounds({ds}, 2, true), (std::vector<Numbers>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8}, {}}));
  EXPECT_EQ(rounds({ds}, 2, false), (std::vector<Numbers>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(rounds({Dataset::range(0).batch(2)}, 2, true), std::vector<Numbers>{});
}

TEST(Rounds, EachReplicaHasItsOwnInput) {
  const std::vector<Dataset> inputs = {Dataset::range(2).batch(2), Dataset::range(5).batch(2)};
  EXPECT_EQ(rounds(inputs, 2, true), (std::vector<Numbers>{{0, 1}, {0, 1}, {}, {2, 3}, {}, {4}}));
  EXPECT_EQ(rounds(inputs, 2, false), (std::vector<Numbers>{{0, 1}, {0, 1}}));
  const Dataset endless = Dataset::range(3).batch(2).repeat();
  EXPECT_EQ(rounds({endless, inputs[0]}, 2, false), (std::vector<Numbers>{{0, 1}, {0, 1}}));
}

TEST(Rounds, WhatHasNoRowsIsNotFilledUp) {
  EXPECT_EQ(
      rounds({Dataset::range(3).map([](const Tensor& x) { return x.reshape({1}); })}, 2, true),
      (std::vector<Numbers>{{0}, {1}, {2}, {}}));
  const Dataset scalars = Dataset::range(3);
  const Dataset ds(
      internal::data::make_round_node({scalars.node()}, scalars.element_spec(), 2, true));
  auto it = ds.make_iterator();
  EXPECT_TRUE(it.next());
  EXPECT_FALSE(it.next());
}

TEST(Rounds, AnErrorTakesOneReplicasTurnOnly) {
  const auto bad = [](int64_t x) {
    if (x == 1) throw DataLoss("bad record");
    return x;
  };
  const auto batches = Dataset::range(4).map(bad).batch(1);
  const Dataset ds(
      internal::data::make_round_node({batches.node()}, batches.element_spec(), 2, true));
  auto it = ds.make_iterator();
  EXPECT_THROW(it.next(), DataLoss);
  const Element step = it.next().value_or(Element());
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(to_vector<int64_t>(step[0].tensor()), Numbers{0});
  EXPECT_EQ(to_vector<int64_t>(step[1].tensor()), Numbers{2});
}

TEST(WithoutRows, KeepsWhatElseIsKnown) {
  const auto spec = ElementSpec::named({{"x", TensorSpec{{kUnknownDim, 3, kUnknownDim}, kFloat64}},
                                        {"text", TensorSpec::strings({kUnknownDim})}});
  const Element empty = internal::data::without_rows(spec, "[here]");
  EXPECT_EQ(empty.spec().to_string(), "(x float64[0,3,0], text string[0])");
  EXPECT_THROW(internal::data::without_rows(ElementSpec(TensorSpec::unknown()), "[here]"),
               FailedPrecondition);
  EXPECT_THROW(internal::data::without_rows(ElementSpec(), "[here]"), FailedPrecondition);
  const Element ragged = Element::ragged(arange(5), from_vector<int64_t>({0, 2, 5}, {3}));
  const Element none = internal::data::without_rows(ragged);
  EXPECT_EQ(none["values"].rows(), 0);
  EXPECT_EQ(to_vector<int64_t>(none["row_splits"].tensor()), Numbers{0});
}

}  // namespace
}  // namespace cohort
