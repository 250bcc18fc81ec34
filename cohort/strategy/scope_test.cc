// SPDX-License-Identifier: Apache-2.0
//
// Who is current where, and which scopes may stand in which.
#include "cohort/strategy/scope.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

// A scope whose end the test chooses.
struct HeapScope {
  explicit HeapScope(const Strategy& strategy) : scope(strategy.scope()) {}
  Scope scope;
};

TEST(Scope, IsEnteredAgainAndAgain) {
  const auto a = two();
  {
    const auto outer = a.scope();
    {
      const auto again = a.scope();
      const auto once_more = Strategy(a).scope();
      EXPECT_TRUE(get_strategy() == a);
    }
    EXPECT_TRUE(get_strategy() == a);
    EXPECT_TRUE(in_cross_replica_context());
  }
  EXPECT_FALSE(has_strategy());
  const auto later = a.scope();
  EXPECT_TRUE(has_strategy());
}

TEST(Scope, ARunInsideIsTheSameStrategyAndComesBack) {
  const auto a = two();
  const auto scope = a.scope();
  a.run([&] { EXPECT_TRUE(get_strategy() == a); });
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_FALSE(get_replica_context());
}

TEST(Scope, EqualStrategiesAreNotTheSame) {
  const auto a = two();
  const auto b = two();
  EXPECT_FALSE(a == b);
  const auto scope = a.scope();
  expect_error<FailedPrecondition>(
      {"[strategy.scope] expected MirroredStrategy", "got another strategy", "cannot be mixed"},
      [&] { const auto mixed = b.scope(); });
  expect_error<FailedPrecondition>({"[strategy.run]", "cannot be mixed"}, [&] { b.run([] {}); });
  expect_error<FailedPrecondition>({"[strategy.scope]", "got MirroredStrategy", "leave that scope"},
                                   [&] {
                                     const auto mixed = [] {
                                       std::optional<Strategy> standard;
                                       std::thread([&] { standard = get_strategy(); }).join();
                                       return *standard;
                                     }();
                                     const auto inside = mixed.scope();
                                   });
}

TEST(Scope, NotInAReplicaButInAMergeFunction) {
  const auto a = two();
  expect_error<FailedPrecondition>({"[strategy.scope]", "got a replica", "use merge_call"},
                                   [&] { a.run([&] { const auto inside = a.scope(); }); });
  expect_error<FailedPrecondition>({"[strategy.run]", "cannot be nested"},
                                   [&] { a.run([&] { a.run([] {}); }); });
  a.run([] {
    get_replica_context().merge_call([](Strategy& s) {
      const auto inside = s.scope();
      EXPECT_TRUE(in_cross_replica_context());
    });
    EXPECT_FALSE(in_cross_replica_context());
  });
}

// What one replica does for all is done in none: there reduce works, and all_reduce names it.
TEST(Scope, AVariableMadeInARunTakesItsFirstValueCrossReplica) {
  const auto a = two();
  const auto scope = a.scope();
  int asked = 0;
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    a.run([&] {
      const Variable v(
          [&](const Shape& shape, DType dtype, const PartitionInfo&) {
            ++asked;
            EXPECT_TRUE(in_cross_replica_context());
            EXPECT_FALSE(get_replica_context());
            EXPECT_TRUE(get_strategy() == a);
            expect_error<FailedPrecondition>({"cross-replica context"}, [] {
              get_replica_context().all_reduce(ReduceOp::kSum, scalar(1));
            });
            const PerReplica<Tensor> values(std::vector<Tensor>{scalar(1), scalar(2)});
            return zeros(shape, dtype) + a.reduce(ReduceOp::kSum, values);
          },
          {.shape = Shape{2}});
      EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{3, 3}));
      EXPECT_TRUE(get_replica_context());
    });
  });
  EXPECT_EQ(asked, 1);
}

TEST(Scope, OfTheDefaultStrategyHoldsNoOtherStrategysVariables) {
  const auto a = two();
  {
    const auto standard = get_strategy().scope();
    EXPECT_FALSE(has_strategy());
    EXPECT_FALSE(in_cross_replica_context());
    EXPECT_TRUE(get_replica_context());
    EXPECT_EQ(Variable(scalar(1)).components().size(), 1U);
    const auto inside = a.scope();
    EXPECT_TRUE(get_strategy() == a);
    EXPECT_EQ(a.run([] { return 1; })[1], 1);
    const auto make = [] { Variable(scalar(1), {.name = "w"}); };
    expect_error<FailedPrecondition>({"[variable] expected one strategy around variable \"w\"",
                                      "got MirroredStrategy#", "leave the scope"},
                                     make);
    EXPECT_THROW(a.run(make), FailedPrecondition);
  }
  const auto scope = a.scope();
  EXPECT_EQ(Variable(scalar(1)).components().size(), 2U);
}

TEST(Scope, VariablesRememberTheirsOutside) {
  const auto a = two();
  const auto b = two();
  Variable v;
  {
    const auto scope = a.scope();
    v = Variable(scalar(1));
  }
  v.assign(3.0);
  for (const Variable& part : v.components()) EXPECT_EQ(part.value().item<float>(), 3);
  EXPECT_TRUE(a.extended().variable_created_in_scope(v));
  EXPECT_FALSE(b.extended().variable_created_in_scope(v));
  EXPECT_FALSE(get_strategy().extended().variable_created_in_scope(v));
  EXPECT_TRUE(get_strategy().extended().variable_created_in_scope(Variable(scalar(1))));
}

TEST(Scope, EndingOutOfOrderKeepsTheInnerOne) {
  const auto a = two();
  auto outer = std::make_unique<HeapScope>(a);
  auto inner = std::make_unique<HeapScope>(a);
  ::testing::internal::CaptureStderr();
  outer.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("reverse order"), std::string::npos);
  EXPECT_TRUE(get_strategy() == a);
  EXPECT_EQ(Variable(scalar(1)).components().size(), 2U);
  inner.reset();
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(Variable(scalar(1)).components().size(), 1U);
}

TEST(Scope, EndingOnAnotherThreadEndsIt) {
  std::thread([] {
    auto scope = std::make_unique<HeapScope>(two());
    ::testing::internal::CaptureStderr();
    std::thread([&] {
      scope.reset();
      EXPECT_FALSE(has_strategy());
    }).join();
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("another one"), std::string::npos);
    EXPECT_EQ(Variable(scalar(1)).components().size(), 1U);  // asks before anything else does
    EXPECT_FALSE(has_strategy());
    const auto other = two().scope();
    EXPECT_EQ(get_strategy().run([] { return 2; })[1], 2);
  }).join();
}

TEST(Scope, EndingOnAnotherThreadLeavesTheScopesInside) {
  std::thread([] {
    const auto a = two();
    auto outer = std::make_unique<HeapScope>(a);
    const auto inner = a.scope();
    ::testing::internal::CaptureStderr();
    std::thread([&] { outer.reset(); }).join();
    ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(get_strategy() == a);
    EXPECT_EQ(Variable(scalar(1)).components().size(), 2U);
  }).join();
  EXPECT_FALSE(has_strategy());
}

TEST(Scope, CanBeMovedAndPutIntoAnOptional) {
  const auto a = two();
  std::optional<Scope> held;
  held = a.scope();
  EXPECT_TRUE(get_strategy() == a);
  Scope moved = std::move(*held);
  held.reset();  // ends nothing
  EXPECT_TRUE(get_strategy() == a);
  ::testing::internal::CaptureStderr();
  moved = a.scope();  // ends the one before
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(get_strategy() == a);
  { const Scope last = std::move(moved); }
  EXPECT_FALSE(has_strategy());
}

TEST(Scope, KeepsItsStrategyAlive) {
  const auto scope = two().scope();
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 2);
}

TEST(SetStrategy, ReplacesAndEndsWithNullopt) {
  const auto a = two();
  const auto b = two();
  set_strategy(a);
  EXPECT_TRUE(get_strategy() == a);
  EXPECT_TRUE(in_cross_replica_context());
  {
    const auto scope = a.scope();  // re-entry
    expect_error<FailedPrecondition>({"[set_strategy]", "outside of every scope", "move it"},
                                     [&] { set_strategy(a); });
    EXPECT_THROW(set_strategy(std::nullopt), FailedPrecondition);
    EXPECT_THROW(set_strategy(b), FailedPrecondition);
  }
  EXPECT_THROW(const auto mixed = b.scope(), FailedPrecondition);
  set_strategy(b);
  EXPECT_TRUE(get_strategy() == b);
  EXPECT_EQ(Variable(scalar(1)).components().size(), 2U);
  EXPECT_THROW(b.run([&] { set_strategy(std::nullopt); }), FailedPrecondition);
  set_strategy(std::nullopt);
  EXPECT_FALSE(has_strategy());
  EXPECT_EQ(Variable(scalar(1)).components().size(), 1U);
  const auto standard = get_strategy().scope();
  EXPECT_THROW(set_strategy(a), FailedPrecondition);
}

TEST(SetStrategy, OfTheDefaultOneIsNullopt) {
  const auto a = two();
  const Strategy standard = get_strategy();
  set_strategy(a);
  set_strategy(standard);
  EXPECT_FALSE(has_strategy());
}

TEST(Strategies, TwoRunAtOnceFromTwoThreads) {
  testing::run_with_deadline(std::chrono::seconds(60), [] {
    const auto train = [](int value) {
      const auto strategy = two();
      const auto scope = strategy.scope();
      const Variable v(scalar(0), {.aggregation = Aggregation::kSum});
      for (int i = 0; i < 50; ++i) strategy.run([&] { v.assign_add(scalar(value)); });
      EXPECT_EQ(v.value().item<float>(), 50.0F * 2 * static_cast<float>(value));
    };
    std::thread other(train, 1);
    train(3);
    other.join();
  });
}

TEST(ReplicaContext, KeepsItsReplicaAndRefusesOthersThreads) {
  const auto a = two();
  std::vector<ReplicaContext> contexts(2);
  a.run([&] {
    const auto ctx = get_replica_context();
    contexts[static_cast<std::size_t>(ctx.replica_id_in_sync_group())] = ctx;
  });
  EXPECT_EQ(contexts[1].replica_id_in_sync_group(), 1);
  EXPECT_EQ(contexts[1].devices(), std::vector<Device>{"CPU:1"});
  EXPECT_EQ(contexts[1].to_string(), "ReplicaContext(MirroredStrategy, replica id 1)");
  expect_error<FailedPrecondition>(
      {"expected the context of replica", "get_replica_context()"},
      [&] { a.run([&] { contexts[1].all_reduce(ReduceOp::kSum, 1); }); });
  expect_error<FailedPrecondition>({"[replica_context.merge_call]", "inside strategy.run"},
                                   [&] { contexts[0].merge_call([](Strategy&) {}); });
  expect_error<FailedPrecondition>({"[replica_context]", "there is no replica here"}, [&] {
    const auto scope = a.scope();
    get_replica_context().merge_call([](Strategy&) {});
  });
}

}  // namespace
}  // namespace cohort
