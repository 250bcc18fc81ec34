// SPDX-License-Identifier: Apache-2.0
//
// Batches that end in mid-stream, and ragged rows, over replicas.
#include <gtest/gtest.h>

#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using Numbers = std::vector<int64_t>;
using Step = std::vector<Numbers>;
using Steps = std::vector<Step>;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

Steps steps_of(const DistributedDataset& dist) {
  Steps out;
  for (const auto& batch : dist) {
    Step& step = out.emplace_back();
    for (const Element& part : batch) step.push_back(to_vector<int64_t>(part.tensor()));
  }
  return out;
}

Dataset with_policy(const Dataset& dataset, AutoShardPolicy policy) {
  return dataset.with_options({.auto_shard_policy = policy});
}

/// The same batches where rows are in memory, and where a function makes them.
std::vector<Dataset> batches(int64_t rows, int64_t size) {
  const auto same = [](const Tensor& x) { return x; };
  return {Dataset::range(rows).batch(size), Dataset::range(rows).map(same).batch(size)};
}

TEST(SplitInput, ABatchIsAStepWhereverItEnds) {
  for (const Dataset& ds : batches(5, 4)) {
    for (AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kOff}) {
      EXPECT_EQ(steps_of(two().distribute_dataset(with_policy(ds.repeat(2), policy))),
                (Steps{{{0, 1}, {2, 3}}, {{4}, {}}, {{0, 1}, {2, 3}}, {{4}, {}}}));
      // What TensorFlow gives with kOff.
      EXPECT_EQ(steps_of(two().distribute_dataset(with_policy(ds.repeat(2).rebatch(4), policy))),
                (Steps{{{0, 1}, {2, 3}},
                       {{4, 0}, {1, 2}},
                       policy == AutoShardPolicy::kOff ? Step{{3, 4}, {}} : Step{{3}, {4}}}));
    }
  }
}

TEST(SplitInput, DataThatIsNotBatchedIsNamed) {
  const Dataset rows = Dataset::from_tensor_slices({ones({6, 3}), ones({6, 1})});
  const MirroredStrategy three({"CPU:0", "CPU:1", "CPU:2"});
  testing::expect_error<InvalidArgument>({"(float32[3], float32[1])", "call batch() first"}, [&] {
    for (const auto& step : three.distribute_dataset(rows)) static_cast<void>(step);
  });
}

/// The rows [0], [1, 2], [], [3, 4, 5], [6], with their numbers.
Dataset ragged_batches(int64_t size) {
  const Element rows = Element::ragged(arange(7), from_vector<int64_t>({0, 1, 3, 3, 6, 7}, {6}));
  return Dataset::from_tensors({rows, arange(5)}).unbatch().ragged_batch(size);
}

TEST(SplitInput, RaggedRowsAreSplitLikeOthers) {
  const auto look = [](const Element& rows, const Tensor& numbers) {
    EXPECT_EQ(rows.rows(), numbers.size(0));
    return std::tuple(rows["values"].tensor(), rows["row_splits"].tensor(), numbers);
  };
  const auto steps = [&](const MirroredStrategy& strategy, AutoShardPolicy policy) {
    Steps out;
    for (const auto& batch : strategy.distribute_dataset(with_policy(ragged_batches(4), policy))) {
      const auto [values, splits, numbers] = strategy.run(look, batch);
      for (std::size_t r = 0; r < values.size(); ++r) {
        out.push_back({to_vector<int64_t>(values[r]), to_vector<int64_t>(splits[r])});
      }
    }
    return out;
  };
  EXPECT_EQ(steps(two(), AutoShardPolicy::kAuto),
            (Steps{{{0, 1, 2}, {0, 1, 3}}, {{3, 4, 5}, {0, 0, 3}}, {{6}, {0, 1}}, {{}, {0}}}));
  const MirroredStrategy three({"CPU:0", "CPU:1", "CPU:2"});
  // TensorFlow's numbers.
  EXPECT_EQ(steps(three, AutoShardPolicy::kOff), (Steps{{{0, 1, 2}, {0, 1, 3}},
                                                        {{}, {0, 0}},
                                                        {{3, 4, 5}, {0, 3}},
                                                        {{6}, {0, 1}},
                                                        {{}, {0}},
                                                        {{}, {0}}}));
  const auto from_function = two().distribute_datasets_from_function(
      [](const InputContext&) { return ragged_batches(2); });
  std::vector<int64_t> rows;
  for (const auto& batch : from_function) {
    for (const Element& part : batch) rows.push_back(part[0].rows());
  }
  EXPECT_EQ(rows, (Numbers{2, 2, 1, 0}));
}

TEST(SplitInput, ATupleWithTheNamesOfRaggedRowsIsSplitByItsComponents) {
  const Dataset batches = Dataset::range(1).map([](int64_t) {
    return Element::named(
        {{"values", arange(4)}, {"row_splits", from_vector<int64_t>({0, 1, 2, 4}, {4})}});
  });
  const auto strategy = two();
  for (const auto& batch : strategy.distribute_dataset(batches)) {
    const auto splits = strategy.run(
        [](const Tensor& values, const Tensor& row_splits) {
          EXPECT_EQ(values.size(0), 2);
          return row_splits;
        },
        batch);
    EXPECT_EQ(to_vector<int64_t>(splits[0]), (Numbers{0, 1}));
    EXPECT_EQ(to_vector<int64_t>(splits[1]), (Numbers{2, 4}));
    const Element joined = strategy.gather(batch, 0);
    EXPECT_FALSE(joined.is_ragged());
    EXPECT_EQ(to_vector<int64_t>(joined["row_splits"].tensor()), (Numbers{0, 1, 2, 4}));
  }
}

}  // namespace
}  // namespace cohort
