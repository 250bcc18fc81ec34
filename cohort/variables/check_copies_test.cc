// SPDX-License-Identifier: Apache-2.0
//
// The debugging check that finds mirrored copies that are not equal.
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

class CheckCopies : public internal::variables::ReplicasTest {
 protected:
  CheckCopies() : ReplicasTest(3) {}
};

TEST_F(CheckCopies, PassesWhereCopiesAreEqualOrNeedNotBe) {
  const Variable w = make(tensor({1, 2}));
  const Variable statistics = make(scalar(0), {.synchronization = Synchronization::kOnRead});
  const Variable empty = make(zeros({0}));
  group_.run([&](int r) { statistics.assign(scalar(r)); });
  w.assign(full({2}, std::nan("")));  // equal bits, though no number equals itself
  creator_->check_copies();
}

TEST_F(CheckCopies, NamesTheFirstDifference) {
  const Variable fine = make(ones({4}), {.name = "fine"});
  const Variable w = make(zeros({2, 3}), {.name = "w"});
  group_.run([&](int r) { w.assign(arange(6, kFloat32).view({2, 3}).ge(4) * (r == 2 ? 2 : 0)); });
  testing::expect_error<FailedPrecondition>(
      {"[strategy.check_copies]", "\"w\"", "0 on replica 0", "2 on replica 2", "at element [1, 1]",
       "give the variable an aggregation"},
      [&] { creator_->check_copies(); });
  w.assign(0.0);
  creator_->check_copies();
  group_.run([&](int r) { w.assign(r == 1 ? -0.0 : 0.0); });
  testing::expect_error<FailedPrecondition>(
      {"0 on replica 0 and -0 on replica 1 at element [0, 0]"}, [&] { creator_->check_copies(); });
}

TEST_F(CheckCopies, ShowsNeighboursApartAndWholeIntegers) {
  const Variable x = make(1.0);
  group_.run([&](int r) { x.assign(scalar(r == 1 ? std::nextafter(1.0F, 2.0F) : 1.0F)); });
  testing::expect_error<FailedPrecondition>({"1.00000012 on replica 1 at element []"},
                                            [&] { creator_->check_copies(); });
  x.assign(1.0);
  const Variable n = make(scalar(1, kInt64));
  const int64_t big = (int64_t{1} << 60) + 1;
  group_.run([&](int r) {
    if (r == 1) n.assign(from_vector<int64_t>({big}, {}));
  });
  testing::expect_error<FailedPrecondition>({"1152921504606846977 on replica 1"},
                                            [&] { creator_->check_copies(); });
}

// TensorFlow lets minima and maxima of replicas diverge in silence.
TEST_F(CheckCopies, FindsScattersWithoutAggregation) {
  const Variable w = make(zeros({3}), {.name = "w"});
  group_.run([&](int r) {
    w.scatter_min({.values = tensor({-1.0 * r}), .indices = tensor({1}, kInt64)});
  });
  testing::expect_error<FailedPrecondition>({"\"w\"", "-1 on replica 1 at element [1]"},
                                            [&] { creator_->check_copies(); });
}

TEST_F(CheckCopies, ForgetsDeadVariables) {
  for (int i = 0; i < 1000; ++i) {
    const Variable v = make(1.0);
    group_.run([&](int r) { v.assign(scalar(r)); });
  }
  creator_->check_copies();
}

TEST(CheckCopiesOfOne, HasNothingToCompare) {
  internal::variables::LocalVariables one;
  one.check_copies();
}

}  // namespace
}  // namespace cohort
