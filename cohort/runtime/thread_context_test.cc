// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/thread_context.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "cohort/runtime/internal/test_group.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal::runtime {
namespace {

ThreadContext updating(int component) {
  ThreadContext context = current_context();
  context.update = component;
  return context;
}

TEST(ThreadContext, IsTheInnermostFrames) {
  EXPECT_EQ(current_context().kind, ContextKind::kDefault);
  EXPECT_EQ(current_replica(), -1);
  EXPECT_EQ(current_layout(), ReplicaLayout());
  {
    const ContextFrame outer(updating(1));
    {
      const ContextFrame inner(updating(2));
      EXPECT_EQ(current_update_replica(), 2);
    }
    EXPECT_EQ(current_update_replica(), 1);
    int elsewhere = 0;
    std::jthread([&] { elsewhere = current_update_replica(); }).join();
    EXPECT_EQ(elsewhere, -1);
  }
  EXPECT_EQ(current_update_replica(), -1);
}

TEST(ThreadContext, AFrameThatEndsEarlyLeavesTheInnermostOneCurrent) {
  std::optional<ContextFrame> outer(std::in_place, updating(1));
  std::optional<ContextFrame> inner(std::in_place, updating(2));
  outer.reset();
  EXPECT_EQ(current_update_replica(), 2);
  inner.reset();
  EXPECT_EQ(current_update_replica(), -1);
}

TEST(ThreadContext, AScopeThatEndedElsewhereIsLeftWhenItsThreadAsks) {
  auto scope = std::make_unique<ScopeFrame>(updating(4), nullptr);
  const std::weak_ptr<const int> owned = [&] {
    auto owner = std::make_shared<const int>(0);
    const std::weak_ptr<const int> weak = owner;
    ScopeFrame::end(std::exchange(scope, std::make_unique<ScopeFrame>(updating(5), owner)));
    return weak;
  }();
  EXPECT_EQ(current_context().update, 5);
  std::jthread([&] { ScopeFrame::end(std::move(scope)); }).join();
  EXPECT_FALSE(owned.expired());
  EXPECT_EQ(current_context().update, -1);
  EXPECT_TRUE(owned.expired());
  EXPECT_FALSE(scopes_ended_elsewhere);
}

// A run's replicas have the context that it was given, and a merge is in none of them.
TEST(ThreadContext, GoesFromRunToReplicasAndMerges) {
  for (const int replicas : {1, 2}) {
    ReplicaGroup group({.replicas = replicas});
    ThreadContext context = updating(3);
    context.kind = ContextKind::kReplica;
    context.layout = ReplicaLayout(1, 2, replicas);
    std::vector<int> ids(static_cast<std::size_t>(replicas), -1);
    run_with_deadline(seconds(60), [&] {
      group.run(
          context,
          [&](ThreadContext& here) {
            EXPECT_EQ(current_update_replica(), 3);
            EXPECT_EQ(current_replica(), here.replica);
            ids[static_cast<std::size_t>(here.replica)] = current_global_replica();
            group.merge("look", kNone, [&](Brought<int>) {
              EXPECT_EQ(current_context().kind, ContextKind::kCrossReplica);
              EXPECT_EQ(current_replica(), -1);
              EXPECT_EQ(current_global_replica(), -1);
              EXPECT_EQ(enclosing_replica_group(), &group);
              EXPECT_EQ(current_layout(), context.layout);
            });
            EXPECT_EQ(current_context().kind, ContextKind::kReplica);
          },
          [](bool) {});
    });
    for (int r = 0; r < replicas; ++r) EXPECT_EQ(ids[static_cast<std::size_t>(r)], replicas + r);
  }
}

}  // namespace
}  // namespace cohort::internal::runtime
