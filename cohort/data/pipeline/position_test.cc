// SPDX-License-Identifier: Apache-2.0
//
// Positions of iterators in checkpoints.
#include <gtest/gtest.h>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::rest_of;

class Position : public testing::FolderTest {};

Dataset pipeline() {
  return Dataset::range(10)
      .shuffle(4)
      .map([](int64_t x) { return x; }, {.parallel_calls = 2})
      .shuffle(3)
      .batch(3)
      .repeat(2)
      .prefetch(2);
}

TEST_F(Position, ComesBackAtAnyPlaceOfAShuffledPipeline) {
  const Dataset dataset = pipeline();
  auto first = dataset.make_iterator();
  const std::string start = first.save();
  const std::vector<std::string> all = rest_of(first);
  ASSERT_EQ(all.size(), 8u);
  for (std::size_t place = 0; place <= all.size(); ++place) {
    auto it = dataset.make_iterator(start);
    for (std::size_t i = 0; i < place; ++i) it.next();
    Checkpoint({{"data", it}}).save(path("x"));
    auto other = pipeline().make_iterator();
    other.next();
    Checkpoint({{"data", other}}).restore(path("x")).assert_consumed();
    const std::vector<std::string> expected(all.begin() + static_cast<int64_t>(place), all.end());
    EXPECT_EQ(rest_of(other), expected) << place;
    EXPECT_EQ(rest_of(it), expected) << place;
  }
}

// The first part's next pass has an order of its own, although nothing reads that part now.
TEST_F(Position, KeepsTheSeedsOfAPartThatHasEnded) {
  const auto make = [] {
    return Dataset::range(6)
        .shuffle(6, {.seed = 3})
        .concatenate(Dataset::range(3).shuffle(3, {.seed = 4}))
        .repeat(3);
  };
  auto first = make().make_iterator();
  const std::vector<std::string> all = rest_of(first);
  ASSERT_EQ(all.size(), 27u);
  for (std::size_t place = 0; place <= all.size(); ++place) {
    auto it = make().make_iterator();
    for (std::size_t i = 0; i < place; ++i) it.next();
    auto other = make().make_iterator(it.save());
    const std::vector<std::string> expected(all.begin() + static_cast<int64_t>(place), all.end());
    EXPECT_EQ(rest_of(other), expected) << place;
  }
}

TEST_F(Position, FollowsAnIteratorThatMovesAndNoLonger) {
  auto it = std::make_unique<data::Iterator>(Dataset::range(5).make_iterator());
  const Checkpoint checkpoint({{"data", *it}});
  data::Iterator moved = std::move(*it);
  it.reset();
  moved.next();
  checkpoint.save(path("x"));
  EXPECT_EQ(rest_of(moved).size(), 4u);
  checkpoint.restore(path("x"));
  EXPECT_EQ(rest_of(moved).size(), 4u);
  moved = Dataset::range(5).make_iterator();
  EXPECT_THROW(checkpoint.save(path("y")), FailedPrecondition);
}

TEST_F(Position, OfAnotherPipelineIsAnErrorBeforeAnythingIsSet) {
  int64_t step = 3;
  auto it = Dataset::range(5).batch(2).make_iterator();
  Checkpoint({{"data", it}, {"a_step", &step}, {"z_step", &step}}).save(path("x"));
  auto other = Dataset::range(5).shuffle(5).make_iterator();
  step = 0;
  const Checkpoint checkpoint({{"data", other}, {"a_step", &step}, {"z_step", &step}});
  const std::string text =
      testing::error_text<InvalidArgument>([&] { checkpoint.restore(path("x")); });
  EXPECT_NE(
      text.find("expected a state of the pipeline range[5].shuffle, got one of range[5].batch"),
      std::string::npos)
      << text;
  EXPECT_EQ(step, 0);
  EXPECT_EQ(rest_of(other).size(), 5u);
}

}  // namespace
}  // namespace cohort
