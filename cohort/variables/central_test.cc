// SPDX-License-Identifier: Apache-2.0
//
// Variables of central storage: one copy, which several replicas read and write together.
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/component.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

using internal::variables::ParameterPlacement;

class Central : public internal::variables::ReplicasTest,
                public ::testing::WithParamInterface<int> {
 protected:
  Central() : ReplicasTest(GetParam(), ParameterPlacement::kCentral) {}
  Variable make(double initial, Aggregation aggregation) {
    return ReplicasTest::make(scalar(initial), {.name = "v", .aggregation = aggregation});
  }
  using ReplicasTest::make;
  static Tensor on(const Variable& v, int replica) { return v.impl().leaf_of(replica).tensor; }
};
INSTANTIATE_TEST_SUITE_P(Replicas, Central, ::testing::Values(2, 3));

TEST_P(Central, HasOneCopyAndALeafPerReplica) {
  for (const bool trainable : {true, false}) {
    const Variable w = make(tensor({1, 2}), {.name = "w", .trainable = trainable});
    ASSERT_EQ(w.components().size(), 1U);
    EXPECT_TRUE(w.components()[0] == w);
    EXPECT_EQ(w.impl().leaf_count(), GetParam());
    EXPECT_EQ(w.impl().copies(), 1);
    for (int r = 0; r < GetParam(); ++r) {
      EXPECT_EQ(on(w, r).data_ptr(), on(w, 0).data_ptr());
      EXPECT_EQ(on(w, r).requires_grad(), trainable);
      if (r > 0 && trainable) {  // with a version counter and gradients of its own
        EXPECT_FALSE(on(w, r).is_same(on(w, 0)));
      }
    }
    group_.run([&](int r) { EXPECT_TRUE(w.value().is_same(on(w, r))); });
    EXPECT_EQ(w.local_tensor().data_ptr(), on(w, 0).data_ptr());
  }
  EXPECT_TRUE(local_impl(make(zeros({3})).impl()).leaf_of(0).arena()->shares_parameters());
}

TEST_P(Central, CrossReplicaWritesApplyOnce) {
  const Variable v = make(1, Aggregation::kSum);
  const auto version = on(v, 1)._version();
  v.assign_add(scalar(2));
  v.assign_sub(0.5);
  EXPECT_EQ(v.value().item<float>(), 2.5);
  EXPECT_GT(on(v, 1)._version(), version);
  std::vector<Tensor> values;
  for (int r = 0; r < GetParam(); ++r) values.push_back(scalar(r + 7));
  v.assign(PerReplica<Tensor>(values));  // the primary's, as in TensorFlow
  EXPECT_EQ(v.value().item<float>(), 7);
}

TEST_P(Central, ReplicaWritesAreAggregatedAndApplyOnce) {
  const Variable sum = make(1, Aggregation::kSum);
  const Variable mean = make(1, Aggregation::kMean);
  const Variable first = make(1, Aggregation::kOnlyFirstReplica);
  group_.run([&](int r) {
    EXPECT_EQ(sum.assign_add(scalar(r + 1)).item<float>(), GetParam() == 2 ? 4 : 7);
    mean.assign_add(scalar(r));
    first.assign_sub(scalar(r + 3));
  });
  EXPECT_EQ(mean.value().item<float>(), GetParam() == 2 ? 1.5 : 2);
  EXPECT_EQ(first.value().item<float>(), -2);
  group_.run([&](int) { mean.assign_add(5.1); });
  EXPECT_EQ(mean.value().item<float>(), (GetParam() == 2 ? 1.5F : 2.0F) + 5.1F);
}

TEST_P(Central, AReplicaCannotWriteWithoutAggregation) {
  const Variable none = make(1, Aggregation::kNone);
  testing::expect_error<InvalidArgument>(
      {"[variable.assign]", "expected an aggregation", "\"v\"", "write it cross-replica"},
      [&] { group_.run([&](int) { none.assign(scalar(2)); }); });
  EXPECT_THROW(group_.run([&](int) { none.assign_add(2.0); }), InvalidArgument);
  EXPECT_EQ(none.value().item<float>(), 1);
  const Variable sum = make(1, Aggregation::kSum);
  EXPECT_THROW(group_.run([&](int) { sum.assign(5.0); }), InvalidArgument);
  EXPECT_EQ(sum.value().item<float>(), 1);
}

TEST_P(Central, OnReadKeepsAComponentPerReplica) {
  for (const bool trainable : {false, true}) {
    const Variable total = make(scalar(0), {.trainable = trainable,
                                            .synchronization = Synchronization::kOnRead,
                                            .aggregation = Aggregation::kSum});
    group_.run([&](int r) { total.assign_add(scalar(r + 1)); });
    EXPECT_EQ(total.components().size(), static_cast<std::size_t>(GetParam()));
    EXPECT_EQ(total.value().item<float>(), GetParam() * (GetParam() + 1) / 2);
  }
}

TEST_P(Central, AFusedUpdateAppliesOnceAndBumpsEveryLeaf) {
  const std::vector<Variable> variables = {make(zeros({37})), make(ones({1000}))};
  internal::variables::FusedUpdate update(variables, {.slot_initial = {0}});
  const auto version = on(variables[1], GetParam() - 1)._version();
  for (int step = 0; step < 3; ++step) {
    group_.run([&](int r) {
      std::vector<GradientAndVariable> pairs;
      for (const Variable& v : variables) pairs.push_back({full(v.shape(), r + 1), v});
      update.apply(Gradients(pairs), update_rules::MomentumStep{.learning_rate = 1, .momentum = 0});
      EXPECT_EQ(variables[0].value()[36].item<float>(),
                -(step + 1) * GetParam() * (GetParam() + 1) / 2);
    });
  }
  EXPECT_EQ(variables[1].value()[999].item<float>(), 1 - 3 * GetParam() * (GetParam() + 1) / 2);
  EXPECT_GT(on(variables[1], GetParam() - 1)._version(), version);
}

}  // namespace
}  // namespace cohort
