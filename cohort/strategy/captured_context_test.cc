// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/captured_context.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

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
using testing::run_with_deadline;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

TEST(CapturedContext, TakesScopeAndGradModeToAnotherThread) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const at::NoGradGuard off;
  const CapturedContext here = CapturedContext::capture();
  std::thread([&] {
    EXPECT_FALSE(has_strategy());
    EXPECT_TRUE(at::GradMode::is_enabled());
    {
      const auto guard = here.enter();
      EXPECT_TRUE(get_strategy() == strategy);
      EXPECT_TRUE(in_cross_replica_context());
      EXPECT_FALSE(at::GradMode::is_enabled());
      EXPECT_EQ(Variable(scalar(1)).components().size(), 2U);
      EXPECT_EQ(strategy.run([] { return 3; })[1], 3);
      EXPECT_THROW(set_strategy(std::nullopt), FailedPrecondition);
    }
    EXPECT_FALSE(has_strategy());
    EXPECT_TRUE(at::GradMode::is_enabled());
  }).join();
}

TEST(CapturedContext, ActsForAReplicaWhichWaits) {
  const auto strategy = two();
  run_with_deadline(std::chrono::seconds(60), [&] {
    const auto sums = strategy.run([] {
      const CapturedContext here = CapturedContext::capture();
      Tensor sum;
      std::thread([&] {
        const auto guard = here.enter();
        const auto ctx = get_replica_context();
        sum = ctx.all_reduce(ReduceOp::kSum, scalar(ctx.replica_id_in_sync_group() + 1));
      }).join();
      return sum;
    });
    EXPECT_EQ(sums[0].item<float>(), 3);
    EXPECT_EQ(sums[1].item<float>(), 3);
  });
}

TEST(CapturedContext, EndsWithItsRunAndDoesNotMix) {
  const auto strategy = two();
  const auto other = two();
  std::optional<CapturedContext> stale;
  strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 1) stale = CapturedContext::capture();
  });
  expect_error<FailedPrecondition>(
      {"[captured_context.enter]", "got it finished", "join the thread"},
      [&] { const auto guard = stale->enter(); });
  const auto scope = other.scope();
  const CapturedContext here = CapturedContext::capture();
  std::thread([&] {
    expect_error<FailedPrecondition>(
        {"[captured_context.enter]", "expected no other strategy", "leave its scope"},
        [&] { strategy.run([&] { const auto guard = here.enter(); }); });
  }).join();
  const auto again = here.enter();  // on its own thread
  EXPECT_TRUE(get_strategy() == other);
}

TEST(CapturedContext, KeepsTheStrategyAlive) {
  std::optional<CapturedContext> context;
  {
    const auto scope = two().scope();
    context = CapturedContext::capture();
  }
  EXPECT_FALSE(has_strategy());
  const auto guard = context->enter();
  EXPECT_EQ(get_strategy().run([] { return 4; })[1], 4);
}

// Whatever the function leaves behind on a replica's thread, each run begins as its caller is.
TEST(ThreadState, GoesAlongAndIsSetAnewEachRun) {
  const auto strategy = two();
  const auto grad_modes = [&] {
    return strategy.local_results(strategy.run([] { return at::GradMode::is_enabled(); }));
  };
  EXPECT_EQ(grad_modes(), (std::vector<bool>{true, true}));
  {
    const at::NoGradGuard off;
    EXPECT_EQ(grad_modes(), (std::vector<bool>{false, false}));
  }
  EXPECT_EQ(grad_modes(), (std::vector<bool>{true, true}));
  strategy.run([] {
    if (get_replica_context().replica_id_in_sync_group() == 1) at::GradMode::set_enabled(false);
  });
  EXPECT_EQ(grad_modes(), (std::vector<bool>{true, true}));
  {
    const c10::InferenceMode inference;
    const auto modes = strategy.run([] { return c10::InferenceMode::is_enabled(); });
    EXPECT_TRUE(modes[0] && modes[1]);
  }
  EXPECT_FALSE(strategy.run([] { return c10::InferenceMode::is_enabled(); })[1]);
}

TEST(ThreadState, CarriesAutocastWithItsType) {
  const auto strategy = two();
  const auto before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  const auto product = strategy.run([] { return ones({2, 2}).matmul(ones({2, 2})).scalar_type(); });
  at::autocast::set_autocast_dtype(at::kCPU, before);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(product[0], at::kHalf);
  EXPECT_EQ(product[1], at::kHalf);
  EXPECT_EQ(strategy.run([] {
    return ones({2, 2}).matmul(ones({2, 2})).scalar_type();
  })[1],
            at::kFloat);
}

struct Marker : c10::DebugInfoBase {};

TEST(ThreadState, CarriesWhatIsNotPlain) {
  const auto strategy = two();
  const auto kind = c10::DebugInfoKind::TEST_INFO;
  const auto seen = [&] {
    return strategy.run([kind] { return c10::ThreadLocalDebugInfo::get(kind) != nullptr; });
  };
  {
    const c10::DebugInfoGuard guard(kind, std::make_shared<Marker>());
    EXPECT_TRUE(seen()[0] && seen()[1]);
  }
  EXPECT_FALSE(seen()[1]);
  strategy.run([kind] {  // left behind on replica 1's thread
    if (get_replica_context().replica_id_in_sync_group() == 1) {
      c10::ThreadLocalDebugInfo::_push(kind, std::make_shared<Marker>());
    }
  });
  EXPECT_FALSE(seen()[1]);
}

}  // namespace
}  // namespace cohort
