// SPDX-License-Identifier: Apache-2.0
//
// Several pushes that are one update: what TensorFlow's SyncReplicasOptimizer does with its
// accumulators, with workers that are strategies of this process, one after the other.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/coordinator/internal/sync_pushes.h"
#include "cohort/coordinator/parameters/push_sum.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/updater.h"

namespace cohort::internal::coordinator {
namespace {

using Numbers = std::vector<float>;

constexpr SyncPushes kTwo = {.needed = 2};

/// A worker that trains "w" by gradient descent with a rate of 1.
struct SyncWorker {
  SyncWorker(const TestServers& servers, int index, const Shape& shape = {2},
             const Partitioner& partitioner = {},
             update_rules::Rule with = update_rules::SgdStep{1})
      : strategy(servers.worker(index, 3, partitioner)), rule(with) {
    const auto scope = strategy.scope();
    w = Variable(zeros(shape), {.name = "w"});
    iterations = Variable(zeros({}, kInt64), {.name = "iteration", .trainable = false});
    std::vector<double> slots;
    if (update_rules::uses_slot(rule, 0)) slots = {0};
    updater = variables::store_of("[test] ", w)
                  .make_updater({w}, {.name = "descent", .slot_initial = slots});
    updater->count_in(iterations);
  }
  void push(const Gradient& gradient) const { updater->apply(Gradients({{gradient, w}}), rule); }
  /// Another function begins.
  void begin() const { begin_parameter_pass(strategy); }
  Numbers value() const { return to_vector<float>(w.value()); }
  int64_t updates() const { return iterations.value().item<int64_t>(); }

  Strategy strategy;
  update_rules::Rule rule;
  Variable w, iterations;
  std::shared_ptr<variables::Updater> updater;
};

Tensor of(const Numbers& numbers) {
  return from_vector(numbers, {static_cast<int64_t>(numbers.size())});
}
IndexedSlices rows_of(const std::vector<int64_t>& rows, const Numbers& values, int64_t all) {
  const auto count = static_cast<int64_t>(rows.size());
  return {.values = from_vector(values, {count, 1}),
          .indices = from_vector(rows, {count}),
          .dense_shape = {all, 1}};
}

class SyncPushesOnServers : public ::testing::Test {
 protected:
  explicit SyncPushesOnServers(SyncPushes how = kTwo) { servers_.sync_pushes = how; }
  TestServers servers_{2};
};

TEST_F(SyncPushesOnServers, AreAppliedTogetherWithTheirMean) {
  const SyncWorker a(servers_, 0);
  const SyncWorker b(servers_, 1);
  a.push(of({2, 4}));
  EXPECT_EQ(b.value(), (Numbers{0, 0}));
  EXPECT_EQ(b.updates(), 0);
  b.push(of({4, 0}));
  EXPECT_EQ(a.value(), (Numbers{-3, -2}));
  EXPECT_EQ(a.updates(), 1);
  a.begin();
  a.push(of({1, 1}));
  a.push(of({3, 3}));  // one worker's count as well
  EXPECT_EQ(b.value(), (Numbers{-5, -4}));
  EXPECT_EQ(b.updates(), 2);
}

TEST_F(SyncPushesOnServers, OfOldWeightsAreDropped) {
  const SyncWorker a(servers_, 0);
  const SyncWorker b(servers_, 1);
  const SyncWorker late(servers_, 2);
  a.push(of({2, 2}));
  b.push(of({2, 2}));
  late.push(of({100, 100}));
  EXPECT_EQ(late.value(), (Numbers{-2, -2}));
  EXPECT_EQ(late.updates(), 1);
  late.push(of({1, 1}));  // it has been told how far the others are, and reads anew
  a.begin();
  a.push(of({1, 1}));
  EXPECT_EQ(a.value(), (Numbers{-3, -3})) << "the late one is not in it";
  EXPECT_EQ(a.updates(), 2);
}

struct LateOnesCount : SyncPushesOnServers {
  LateOnesCount() : SyncPushesOnServers({.needed = 2, .drops_late = false}) {}
};
TEST_F(LateOnesCount, WhereTheOptionSaysSo) {
  const SyncWorker a(servers_, 0);
  const SyncWorker late(servers_, 1);
  a.push(of({2, 2}));
  a.push(of({2, 2}));
  late.push(of({6, 0}));
  a.push(of({2, 2}));
  EXPECT_EQ(a.value(), (Numbers{-6, -3}));
  EXPECT_EQ(a.updates(), 2);
}

// A row is divided by the number of pushes, also of those that do not name it.
TEST_F(SyncPushesOnServers, OfRowsAreSummedByRow) {
  const SyncWorker a(servers_, 0, {5, 1}, fixed_shards_partitioner(2));
  const SyncWorker b(servers_, 1, {5, 1}, fixed_shards_partitioner(2));
  a.push(rows_of({4, 1, 4}, {2, 4, 6}, 5));
  EXPECT_EQ(b.value(), (Numbers{0, 0, 0, 0, 0}));
  b.push(rows_of({1, 0}, {2, 10}, 5));
  EXPECT_EQ(a.value(), (Numbers{-5, -3, 0, 0, -4}));
  a.begin();
  b.begin();
  a.push(rows_of({0}, {2}, 5));  // the second shard has no row of either
  b.push(ones({5, 1}));
  EXPECT_EQ(a.value(), (Numbers{-6.5, -3.5, -0.5, -0.5, -4.5})) << "rows and a whole one";
  EXPECT_EQ(a.updates(), 2);
}

// Momentum goes on in rows that nobody names, once for each update.
TEST_F(SyncPushesOnServers, SlotsMoveOnceForEachUpdate) {
  const update_rules::Rule momentum = update_rules::MomentumStep{1, 0.5, false};
  const SyncWorker a(servers_, 0, {2, 1}, {}, momentum);
  const SyncWorker b(servers_, 1, {2, 1}, {}, momentum);
  for (int update = 0; update < 2; ++update) {
    a.begin();
    b.begin();
    a.push(update == 0 ? Gradient(ones({2, 1}) * 4) : Gradient(rows_of({1}, {0}, 2)));
    b.push(update == 0 ? Gradient(ones({2, 1}) * 4) : Gradient(rows_of({1}, {0}, 2)));
  }
  EXPECT_EQ(a.value(), (Numbers{-6, -6})) << "4, and half of it";
  EXPECT_EQ(to_vector<float>(b.updater->slot(0, 0)), (Numbers{-2, -2}));
}

TEST_F(SyncPushesOnServers, AVariableWithoutAGradientWaitsByItself) {
  const Strategy strategy = servers_.worker(0);
  const auto scope = strategy.scope();
  const Variable often(zeros({1}), {.name = "often"});
  const Variable seldom(zeros({1}), {.name = "seldom"});
  const Variable iterations(zeros({}, kInt64), {.name = "iteration", .trainable = false});
  const auto updater =
      variables::store_of("[test] ", often).make_updater({often, seldom}, {.name = "descent"});
  updater->count_in(iterations);
  for (int push = 0; push < 6; ++push) {
    Gradients gradients({{ones({1}), often}});
    if (push % 3 == 2) gradients = Gradients({{ones({1}), often}, {ones({1}), seldom}});
    updater->apply(gradients, update_rules::SgdStep{1});
  }
  EXPECT_EQ(to_vector<float>(often.value()), Numbers{-3});
  EXPECT_EQ(to_vector<float>(seldom.value()), Numbers{-1}) << "when it has had two";
  EXPECT_EQ(iterations.value().item<int64_t>(), 3);
}

TEST_F(SyncPushesOnServers, TheNextOptimizerOfANameBeginsWithNothing) {
  const Strategy strategy = servers_.coordinator();
  const auto scope = strategy.scope();
  const Variable w(zeros({1}), {.name = "w"});
  for (int again = 0; again < 3; ++again) {
    const Variable iterations(zeros({}, kInt64), {.name = "iteration", .trainable = false});
    const auto updater = variables::store_of("[test] ", w).make_updater({w}, {.name = "descent"});
    updater->count_in(iterations);
    updater->apply(Gradients({{ones({1}), w}}), update_rules::SgdStep{1});
  }
  EXPECT_EQ(to_vector<float>(w.value()), Numbers{0}) << "each has had one push";
}

// What a function prepares is a push when it counts, and once.
TEST_F(SyncPushesOnServers, OfFunctionsThatCountOnceCountWhenTheyDo) {
  const SyncWorker a(servers_, 0);
  const auto servers = servers_.connect();
  const uint64_t dropped = servers->next_closure();
  const uint64_t kept = servers->next_closure();
  std::vector<uint64_t> counts;
  {
    const Transaction once(dropped, 1);
    a.push(of({100, 100}));
  }
  {
    const Transaction once(kept, 1);
    a.push(of({2, 2}));
    a.push(of({4, 4}));
    counts = once.counts();
  }
  EXPECT_EQ(a.value(), (Numbers{0, 0}));
  std::vector<std::exception_ptr> errors;
  for (int told = 0; told < 2; ++told) {
    servers->settle({{.closure = dropped}, {.closure = kept, .attempt = 1, .counts = counts}}, 1,
                    errors);
  }
  EXPECT_EQ(errors[1], nullptr);
  EXPECT_EQ(a.value(), (Numbers{-3, -3}));
  EXPECT_EQ(a.updates(), 1);
}

// A copy of the state goes on where it was, also with rows, and keeps what it had when that
// changes.
TEST_F(SyncPushesOnServers, WhatWaitsIsInASnapshot) {
  const SyncWorker a(servers_, 0, {3, 1});
  a.push(rows_of({2, 0}, {2, 4}, 3));
  std::vector<rpc::Payload> snapshots;
  for (const auto& each : servers_.services) snapshots.push_back(each->snapshot());
  std::vector<std::string> bytes;
  for (const rpc::Payload& each : snapshots) bytes.push_back(each.text());
  a.push(ones({3, 1}) * 2);
  EXPECT_EQ(a.value(), (Numbers{-3, -1, -2}));
  EXPECT_EQ(a.updates(), 1);
  for (std::size_t s = 0; s < snapshots.size(); ++s) {
    EXPECT_EQ(snapshots[s].text(), bytes[s]);
    servers_.services[s]->restore(snapshots[s]);
  }
  EXPECT_EQ(a.value(), (Numbers{0, 0, 0}));
  a.begin();
  a.push(ones({3, 1}) * 2);
  EXPECT_EQ(a.value(), (Numbers{-3, -1, -2}));
  EXPECT_EQ(a.updates(), 1);
}

// The rest of a round: who pushes next meets nothing of it, and nobody is late.
TEST_F(SyncPushesOnServers, ThatWaitAreAnUpdateWhenNoMoreCome) {
  const SyncWorker a(servers_, 0, {3, 1}, fixed_shards_partitioner(2));
  const SyncWorker b(servers_, 1, {3, 1}, fixed_shards_partitioner(2));
  a.push(rows_of({2}, {4}, 3));
  variables::store_of("[test] ", b.w).complete_updates(b.iterations);
  EXPECT_EQ(a.value(), (Numbers{0, 0, -4}));
  EXPECT_EQ(a.updates(), 1);
  variables::store_of("[test] ", b.w).complete_updates(b.iterations);
  EXPECT_EQ(a.updates(), 1) << "nothing waits";
  a.begin();
  b.begin();
  a.push(ones({3, 1}));
  b.push(ones({3, 1}) * 3);
  EXPECT_EQ(a.value(), (Numbers{-2, -2, -6}));
  EXPECT_EQ(a.updates(), 2);
}

TEST_F(SyncPushesOnServers, AreNotAskedForWhereTheirOptimizerHasEnded) {
  const Strategy chief = servers_.coordinator();
  std::vector<Variable> made;
  {
    const auto scope = chief.scope();
    made.emplace_back(zeros({2}), VariableOptions{.name = "w"});
    made.emplace_back(zeros({}, kInt64), VariableOptions{.name = "iteration", .trainable = false});
  }
  const SyncWorker a(servers_, 0);
  made.pop_back();
  const auto scope = chief.scope();
  const Variable next(zeros({1}), {.name = "next"});  // behind the news of what has ended
  EXPECT_NO_THROW(a.begin());
  EXPECT_EQ(a.value(), (Numbers{0, 0}));
}

/// A worker of two variables, of so many numbers.
struct PairWorker {
  PairWorker(const TestServers& servers, int index, int64_t x_size = 1, int64_t y_size = 1)
      : strategy(servers.worker(index, 3)) {
    const auto scope = strategy.scope();
    x = Variable(zeros({x_size}), {.name = "x"});
    y = Variable(zeros({y_size}), {.name = "y"});
    iterations = Variable(zeros({}, kInt64), {.name = "iteration", .trainable = false});
    updater = variables::store_of("[test] ", x).make_updater({x, y}, {.name = "descent"});
    updater->count_in(iterations);
  }
  void push(const Gradients& gradients) const {
    updater->apply(gradients, update_rules::SgdStep{1});
  }
  Gradients both() const { return Gradients({{ones({1}), x}, {ones({1}), y}}); }

  Strategy strategy;
  Variable x, y, iterations;
  std::shared_ptr<variables::Updater> updater;
};

TEST_F(SyncPushesOnServers, ThatAreRefusedLeaveNothing) {
  const int64_t large = (int64_t{63} << 20) / 4;
  const PairWorker a(servers_, 0, 1, large);
  testing::expect_error<InvalidArgument>({"sync_replicas", "\"y\""}, [&] {
    a.push(Gradients({{ones({1}), a.x}, {zeros({large}), a.y}}));
  });
  a.push(Gradients({{ones({1}), a.x}}));
  EXPECT_EQ(to_vector<float>(a.x.value()), Numbers{0}) << "it has had one push";
  EXPECT_EQ(a.iterations.value().item<int64_t>(), 0);
}

TEST_F(SyncPushesOnServers, AreLateVariableByVariable) {
  const PairWorker fast(servers_, 0);
  const PairWorker slow(servers_, 1);
  const PairWorker slower(servers_, 2);
  const auto warned = [](const PairWorker& worker, const Gradients& gradients) {
    ::testing::internal::CaptureStderr();
    worker.push(gradients);
    return ::testing::internal::GetCapturedStderr();
  };
  fast.push(fast.both());
  fast.push(Gradients({{ones({1}), fast.x}}));
  EXPECT_NE(warned(slow, slow.both()).find("in 1 of its parts"), std::string::npos);
  EXPECT_EQ(to_vector<float>(slow.x.value()), Numbers{-1}) << "of the fast one alone";
  EXPECT_EQ(to_vector<float>(slow.y.value()), Numbers{-1}) << "of both";
  fast.push(Gradients({{ones({1}), fast.x}}));
  fast.push(Gradients({{ones({1}), fast.x}}));
  const PairWorker& other = slower;
  EXPECT_NE(warned(other, other.both()).find("in 2 of its parts"), std::string::npos);
  EXPECT_EQ(warned(other, other.both()).find("of its parts"), std::string::npos) << "once";
}

// A gradient of what was read before an update is no part of the one behind it.
TEST_F(SyncPushesOnServers, SayTheAgeOfAllThatTheyWereComputedFrom) {
  const PairWorker a(servers_, 0);
  const PairWorker b(servers_, 1);
  begin_parameter_pass(a.strategy);
  const Tensor recorded = a.y.value() * 2;
  b.push(b.both());
  b.push(b.both());
  a.push(Gradients({{ones({1}), a.x}}));  // is told of the update
  EXPECT_EQ(to_vector<float>(a.y.value()), Numbers{-1}) << "what the next push says it is from";
}

TEST(PushSum, SaysWhatAPushAsksFor) {
  PushSum sum;
  EXPECT_EQ(sum.room_for({}, 8, 2), 16U);
  EXPECT_EQ(sum.room_for(1, 8, 2), 16U) << "a row and its number";
  sum.add({{1}, ones({1, 2})}, 1, false);
  EXPECT_EQ(sum.room_for(1, 8, 2), 32U);
  EXPECT_EQ(sum.room_for(5, 8, 2), 32U) << "all there are";
  EXPECT_EQ(sum.room_for({}, 8, 2), 48U) << "and both together";
  sum.add(ones({2, 2}), 1);
  EXPECT_EQ(sum.room_for({}, 8, 2), 32U) << "it is there";
  EXPECT_EQ(sum.room_for(1, 8, 2), 64U);
}

TEST(PushSum, KeepsASnapshotsShareAndSaysItsBytes) {
  PushSum sum;
  sum.add(ones({2, 2}), 3);
  rpc::MessageWriter head;
  rpc::Payload numbers;
  sum.save(head, numbers);
  const std::string before = numbers.text();
  sum.add(ones({2, 2}), 1);
  EXPECT_EQ(numbers.text(), before);
  EXPECT_EQ(sum.dense_of(2).sum().item<double>(), 16);
  EXPECT_EQ(sum.bytes(), 16U);
  sum.add({{1}, ones({1, 2})}, 2, false);
  EXPECT_EQ(sum.dense_of(2).sum().item<double>(), 20);
  EXPECT_EQ(sum.count(), 3U);
}

TEST_F(SyncPushesOnServers, OfMoreThanAMessageAreRefused) {
  const int64_t rows = (int64_t{63} << 20) / 4;
  const SyncWorker a(servers_, 0, {rows});
  testing::expect_error<InvalidArgument>({"sync_replicas", "\"w\"", "variable_partitioner"},
                                         [&] { a.push(zeros({rows})); });
}

TEST(SyncPushes, AreOffUnlessAskedFor) {
  const TestServers servers(1);
  const SyncWorker a(servers, 0);
  EXPECT_FALSE(variables::store_of("[test] ", a.w).aggregates_pushes(a.w));
  a.push(of({1, 1}));
  EXPECT_EQ(a.value(), (Numbers{-1, -1}));
}

}  // namespace
}  // namespace cohort::internal::coordinator
