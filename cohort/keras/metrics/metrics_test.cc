// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/metrics.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/metrics/classification.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/local_variables.h"

namespace cohort::keras {
namespace {

using cohort::internal::runtime::ReplicaGroup;
using cohort::internal::variables::LocalVariables;
using cohort::internal::variables::LocalVariablesOptions;
using cohort::internal::variables::VariableCreatorScope;

double number(const Tensor& x) { return x.item<double>(); }
double value(const Metric& metric) { return number(metric.result()); }

// So a mask of steps weighs what is said of each.
TEST(BinaryIoU, WeightsOfLowerRankHoldForWholeRows) {
  const Tensor y = from_vector<float>({1, 0, 1, 1, 0, 0}, {3, 2});
  const Tensor p = from_vector<float>({1, 1, 1, 0, 1, 1}, {3, 2});
  const BinaryIoU rows, all;
  rows.update_state(y, p, tensor({1, 1, 0}));
  all.update_state(y, p, tensor({1, 1, 1, 1, 0, 0}).reshape({3, 2}));
  EXPECT_EQ(value(rows), value(all));
  EXPECT_THROW(rows.update_state(y, p, tensor({1, 1})), InvalidArgument);
}

TEST(Mean, WeightedAsKerasDocuments) {
  const Mean mean("m");
  EXPECT_EQ(value(mean), 0);  // nothing yet
  mean.update_state(tensor({1, 3, 5, 7}));
  EXPECT_EQ(value(mean), 4);
  mean.reset_state();
  mean.update_state(tensor({1, 3, 5, 7}), tensor({1, 1, 0, 0}));
  EXPECT_EQ(value(mean), 2);
  mean.reset_state();
  mean.update_state(scalar(3));
  mean.update_state(scalar(5), scalar(3));
  EXPECT_EQ(value(mean), 4.5);
  mean.reset_state();
  mean.update_state(tensor({1, 2, 3, 6}).view({2, 2}));  // rows count once
  mean.update_state(tensor({1, 2, 3, 6}).view({2, 2}), tensor({3, 1}));
  EXPECT_EQ(value(mean), (1.5 + 4.5 + 3 * 1.5 + 4.5) / 6);
  EXPECT_THROW(mean.update_state(ones({2, 2}), ones({3})), InvalidArgument);
  EXPECT_EQ(mean.variables().size(), 2U);
  EXPECT_EQ(mean.variables()[0].name(), "m/total");
}

TEST(Mean, EmptyBatchesAndNumbers) {
  const Mean mean;
  mean.update_state(zeros({0}));
  mean.update_state(zeros({0, 3}), zeros({0}));
  EXPECT_EQ(value(mean), 0);
  mean.add(6, 2);
  EXPECT_EQ(value(mean), 3);
  // A count of one more than float32 can hold.
  mean.reset_state();
  mean.add(16777216, 16777216);
  mean.add(1, 1);
  EXPECT_EQ(number(mean.variables()[1].value()), 16777217);
}

TEST(Sum, AddsWeighted) {
  const Sum sum;
  sum.update_state(tensor({1, 3, 5, 7}));
  sum.update_state(tensor({1, 3, 5, 7}), tensor({1, 1, 0, 0}));
  EXPECT_EQ(value(sum), 20);
}

TEST(Sum, WeightsOfLowerRankHoldForWholeRows) {
  const Tensor values = tensor({1, 2, 3, 4}).view({2, 2});
  const auto weighted = [](const Tensor& x, const Tensor& weights) {
    const Sum sum;
    sum.update_state(x, weights);
    return value(sum);
  };
  EXPECT_EQ(weighted(values, tensor({1, 10})), 3 + 70);
  EXPECT_EQ(weighted(values.view({2, 1, 2}), tensor({1, 10})), 3 + 70);
  EXPECT_EQ(weighted(values.view({2, 2, 1}), tensor({1, 10})), 3 + 70);
  EXPECT_EQ(weighted(values, tensor({1, 10}).view({2, 1})), 3 + 70);
  EXPECT_EQ(weighted(values, scalar(10)), 100);
  EXPECT_THROW(weighted(values, ones({3})), InvalidArgument);
}

TEST(Accuracy, DocumentedValues) {
  const Tensor w = tensor({1, 1, 0, 0});
  const Accuracy equal;
  equal.update_state(tensor({1, 2, 3, 4}).view({4, 1}), tensor({0, 2, 3, 4}).view({4, 1}));
  EXPECT_EQ(value(equal), 0.75);
  equal.reset_state();
  equal.update_state(tensor({1, 2, 3, 4}), tensor({0, 2, 3, 4}), w);
  EXPECT_EQ(value(equal), 0.5);

  const BinaryAccuracy binary;
  const Tensor p = tensor({0.98, 1, 0, 0.6}).view({4, 1});
  binary.update_state(tensor({1, 1, 0, 0}, kInt64).view({4, 1}), p);
  EXPECT_EQ(value(binary), 0.75);
  binary.update_state(tensor({1, 1, 0, 0}), p);  // [4] against [4, 1]
  EXPECT_EQ(value(binary), 0.75);
  binary.reset_state();
  binary.update_state(tensor({1, 1, 0, 0}).view({4, 1}), p, tensor({1, 0, 0, 1}));
  EXPECT_EQ(value(binary), 0.5);

  const BinaryAccuracy lower("lower", 0.3);
  lower.update_state(tensor({0, 1, 1, 1}), tensor({0.3, 0.31, 0.2, 0.9}));  // 0.3 is not above
  EXPECT_EQ(value(lower), 0.75);

  const CategoricalAccuracy dense;
  const Tensor targets = tensor({0, 0, 1, 0, 1, 0}).view({2, 3});
  const Tensor scores = tensor({0.1, 0.9, 0.8, 0.05, 0.95, 0}).view({2, 3});
  dense.update_state(targets, scores);
  EXPECT_EQ(value(dense), 0.5);
  dense.reset_state();
  dense.update_state(targets, scores, tensor({0.7, 0.3}));
  EXPECT_NEAR(value(dense), 0.3, 1e-7);

  const SparseCategoricalAccuracy sparse;
  const Tensor rows = tensor({0.1, 0.6, 0.3, 0.05, 0.95, 0}).view({2, 3});
  sparse.update_state(tensor({2, 1}).view({2, 1}), rows);
  EXPECT_EQ(value(sparse), 0.5);
  sparse.reset_state();
  sparse.update_state(tensor({2, 1}).view({2, 1}), rows, tensor({0.7, 0.3}));
  EXPECT_NEAR(value(sparse), 0.3, 1e-7);
}

TEST(Accuracy, LabelsAndScoresOfAnyType) {
  const Tensor scores = tensor({1, 5, 2, 7, 0, 3}).view({2, 3});
  for (const DType label : {kInt64, kInt32, kUint8, kFloat32, kFloat64, DType::Short}) {
    for (const DType score : {kFloat32, kFloat64, kBFloat16, kInt64}) {
      const SparseCategoricalAccuracy metric;
      metric.update_state(tensor({1, 2}).to(label), scores.to(score));
      EXPECT_EQ(value(metric), 0.5);
    }
  }
  const SparseCategoricalAccuracy strided;
  strided.update_state(tensor({1, 0}), scores.t().contiguous().t());
  EXPECT_EQ(value(strided), 1);
  const SparseCategoricalAccuracy strange;
  strange.update_state(tensor({0.5, NAN}), scores);
  EXPECT_EQ(value(strange), 0);
}

TEST(Accuracy, SequencesCountAsTheirMean) {
  const SparseCategoricalAccuracy metric;
  const Tensor scores = tensor({1, 0, 0, 1, 1, 0, 1, 0}).view({2, 2, 2});
  const Tensor labels = tensor({0, 1, 0, 1}, kInt64).view({2, 2});
  metric.update_state(labels, scores);
  EXPECT_EQ(value(metric), 0.75);
  EXPECT_EQ(number(metric.variables()[1].value()), 2);
  metric.reset_state();
  metric.update_state(labels, scores, tensor({3, 1}));
  EXPECT_EQ(value(metric), (3 * 1 + 0.5) / 4);
}

TEST(Accuracy, EmptyBatchesAndWrongShapes) {
  const SparseCategoricalAccuracy sparse;
  sparse.update_state(zeros({0}, kInt64), zeros({0, 3}));
  EXPECT_EQ(value(sparse), 0);
  EXPECT_EQ(number(sparse.variables()[1].value()), 0);
  EXPECT_THROW(sparse.update_state(zeros({3}, kInt64), zeros({2, 3})), InvalidArgument);
  EXPECT_THROW(CategoricalAccuracy().update_state(zeros({2}), zeros({2, 3})), InvalidArgument);
  EXPECT_THROW(BinaryAccuracy().update_state(zeros({3}), zeros({2, 2})), InvalidArgument);
}

TEST(TopK, DocumentedValues) {
  const Tensor targets = tensor({0, 0, 1, 0, 1, 0}).view({2, 3});
  const Tensor scores = tensor({0.1, 0.9, 0.8, 0.05, 0.95, 0}).view({2, 3});
  const TopKCategoricalAccuracy one(1);
  one.update_state(targets, scores);
  EXPECT_EQ(value(one), 0.5);
  const TopKCategoricalAccuracy two(2);
  two.update_state(targets, scores);
  EXPECT_EQ(value(two), 1);
  const SparseTopKCategoricalAccuracy sparse(1);
  sparse.update_state(tensor({2, 1}), scores, tensor({0.7, 0.3}));
  EXPECT_NEAR(value(sparse), 0.3, 1e-7);
  const SparseTopKCategoricalAccuracy odd(2);
  odd.update_state(tensor({7, 0}), tensor({1, 1, 1, INFINITY, 0, 0}).view({2, 3}));
  EXPECT_EQ(value(odd), 0);
  odd.update_state(tensor({2}), ones({1, 3}));  // equal scores are all at the top
  EXPECT_NEAR(value(odd), 1.0 / 3, 1e-12);
  EXPECT_THROW(TopKCategoricalAccuracy(0), InvalidArgument);
}

TEST(Errors, SquaredAndAbsolute) {
  const Tensor y = tensor({0, 1, 0, 0}).view({2, 2});
  const Tensor p = tensor({1, 1, 0, 0}).view({2, 2});
  const metrics::MeanSquaredError squared;
  squared.update_state(y, p);
  EXPECT_EQ(value(squared), 0.25);
  squared.reset_state();
  squared.update_state(y, p, tensor({1, 0}));
  EXPECT_EQ(value(squared), 0.5);
  const metrics::MeanAbsoluteError absolute;
  absolute.update_state(y.to(kInt64), p * 3.0);
  EXPECT_EQ(value(absolute), (1.5 + 1) / 2);
}

TEST(Names, AccuracyDependsOnShapes) {
  const Metric accuracy = "accuracy";
  EXPECT_TRUE(accuracy.is_name());
  EXPECT_EQ(accuracy.name(), "accuracy");
  EXPECT_THROW(accuracy.update_state(zeros({1}), zeros({1, 1})), FailedPrecondition);
  const auto accepts = [&](const Shape& y, const Shape& p) {
    const Metric metric = Metric("acc").resolve(y, p);
    EXPECT_EQ(metric.name(), "acc");
    metric.update_state(zeros(y), zeros(p));
    return value(metric);
  };
  EXPECT_EQ(accepts({4, 1}, {4, 1}), 1);  // binary
  EXPECT_EQ(accepts({4}, {4, 3}), 1);     // sparse
  EXPECT_EQ(accepts({4, 1}, {4, 3}), 1);
  EXPECT_EQ(accepts({4, 3}, {4, 3}), 1);  // categorical
  // The three differ on these.
  const Metric sparse = accuracy.resolve({2}, {2, 3});
  sparse.update_state(tensor({2, 0}), tensor({0, 0, 1, 0, 0, 1}).view({2, 3}));
  EXPECT_EQ(value(sparse), 0.5);
  EXPECT_EQ(Metric("mse").resolve({2, 1}, {2, 1}).name(), "mse");
  const Metric made = SparseCategoricalAccuracy("mine");
  EXPECT_EQ(&made.resolve({1}, {1, 2}).base(), &made.base());
  EXPECT_THROW(Metric("acuracy"), InvalidArgument);
}

TEST(Replicas, KeepTheirOwnStateAndSumAcross) {
  ReplicaGroup group({.replicas = 2});
  const auto creator = std::make_shared<LocalVariables>(
      LocalVariablesOptions{.devices = {Device("CPU:0"), Device("CPU:1")}});
  std::vector<double> own(2);
  const VariableCreatorScope scope(creator);
  const Mean mean;
  const SparseCategoricalAccuracy accuracy;
  const Tensor scores = tensor({1, 0, 0, 1}).view({2, 2});
  group.run([&](int r) {
    mean.update_state(r == 0 ? tensor({5, 6}) : tensor({7}));
    accuracy.update_state(full({2}, r, kInt64), scores);
    if (r == 1) accuracy.update_state(zeros({0}, kInt64), zeros({0, 2}));
    own[static_cast<std::size_t>(r)] = value(mean);
  });
  EXPECT_EQ(own, (std::vector<double>{5.5, 7}));
  EXPECT_EQ(value(mean), 6);
  EXPECT_EQ(value(accuracy), 0.5);
  EXPECT_EQ(number(mean.variables()[0].value()), 18);
  mean.reset_state();
  EXPECT_EQ(value(mean), 0);
  EXPECT_THROW(mean.update_state(scalar(1)), InvalidArgument);  // which replica's?
  EXPECT_THROW(mean.add(1, 1), InvalidArgument);
}

TEST(Replicas, MetricMadeOutsideTheScopeIsRefused) {
  ReplicaGroup group({.replicas = 2});
  const Mean mean;
  testing::expect_error<InvalidArgument>(
      {"scope"}, [&] { group.run([&](int) { mean.update_state(scalar(1)); }); });
}

TEST(OwnMetric, CountsInItsVariables) {
  struct Positives : MetricBase {
    Positives() : MetricBase("positives") {}
    Variable count = add_variable({}, "count");
    void update_state(const Tensor& y, const Tensor&, const Tensor&) override {
      EXPECT_FALSE(at::GradMode::is_enabled());
      count.assign_add(y.gt(0).sum());
    }
    Tensor result() override { return count.value(); }
  };
  const Metric metric = std::make_shared<Positives>();
  metric.update_state(tensor({1, -1, 2}), {});
  metric.update_state(tensor({1, 0}), {});
  EXPECT_EQ(value(metric), 3);
  metric.reset_state();
  EXPECT_EQ(value(metric), 0);
}

// Names and classes: what was moved from is neither.
TEST(Metrics, MovedFromOnesSaySo) {
  Metric by_name = "mae", by_class = metrics::MeanAbsoluteError();
  const Metric kept[] = {std::move(by_name), std::move(by_class)};
  for (const Metric* moved : {&by_name, &by_class}) {
    EXPECT_THROW(moved->resolve({2, 1}, {2, 1}), FailedPrecondition);
    EXPECT_THROW(moved->direction(), FailedPrecondition);
  }
  EXPECT_EQ(kept[0].direction(), Direction::kDown);
}

}  // namespace
}  // namespace cohort::keras
