// SPDX-License-Identifier: Apache-2.0
//
// Replicas that bring unlike things to a collective hear of it, and get no numbers.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

/// Two replicas; with true through a user's CrossDeviceOps.
struct UnlikeCollectives : ::testing::TestWithParam<bool> {
  UnlikeCollectives()
      : strategy({.devices = {"CPU:0", "CPU:1"},
                  .cross_device_ops = GetParam() ? std::make_shared<ReductionToOneDevice>()
                                                 : std::shared_ptr<CrossDeviceOps>()}) {}

  /// step(replica, its context) throws an E that says all of `parts`.
  template <class E, class F>
  void expect(const F& step, testing::Words parts) {
    testing::expect_error<E>(parts, [&] {
      strategy.run([&] {
        const ReplicaContext ctx = get_replica_context();
        step(ctx.replica_id_in_sync_group(), ctx);
      });
    });
    const auto sums =
        strategy.run([] { return get_replica_context().all_reduce(ReduceOp::kSum, ones({2})); });
    EXPECT_EQ(to_vector<float>(sums[1]), (std::vector<float>{2, 2})) << "usable afterwards";
  }

  const MirroredStrategy strategy;
};

using Map = std::map<std::string, Tensor>;

TEST_P(UnlikeCollectives, KeysDiffer) {
  const auto nest = [](int r) { return Map{{r == 0 ? "b" : "a", scalar(1)}}; };
  expect<InvalidArgument>([&](int r, const auto& ctx) { ctx.all_reduce(ReduceOp::kSum, nest(r)); },
                          {"{b: tensor} on replica 0", "{a: tensor} on replica 1"});
  const auto rows = [](int r) { return Map{{r == 0 ? "b" : "a", ones({1})}}; };
  expect<InvalidArgument>([&](int r, const auto& ctx) { ctx.all_gather(rows(r), 0); },
                          {"{b: tensor} on replica 0", "{a: tensor} on replica 1"});
}

TEST_P(UnlikeCollectives, LengthsDiffer) {
  using Lists = std::vector<std::vector<Tensor>>;
  const Tensor x = scalar(1);
  expect<InvalidArgument>(
      [&](int r, const auto& ctx) {
        ctx.all_reduce(ReduceOp::kSum, r == 0 ? Lists{{x}, {x, x}} : Lists{{x, x}, {x}});
      },
      {"[[tensor], [tensor, tensor]] on replica 0", "[[tensor, tensor], [tensor]] on replica 1"});
}

TEST_P(UnlikeCollectives, OneHasNone) {
  using Pair = std::pair<std::optional<Tensor>, std::optional<Tensor>>;
  expect<InvalidArgument>(
      [&](int r, const auto& ctx) {
        ctx.all_reduce(ReduceOp::kSum, r == 0 ? Pair{scalar(1), {}} : Pair{{}, scalar(1)});
      },
      {"(tensor, none) on replica 0", "(none, tensor) on replica 1"});
}

TEST_P(UnlikeCollectives, TypesDiffer) {
  expect<InvalidArgument>(
      [&](int r, const auto& ctx) {
        const Tensor x = scalar(1);
        if (r == 0) {
          ctx.all_reduce(ReduceOp::kSum, std::pair(x, x));
        } else {
          ctx.all_reduce(ReduceOp::kSum, std::vector<Tensor>{x, x});
        }
      },
      {"(tensor, tensor) on replica 0", "[tensor, tensor] on replica 1"});
}

TEST_P(UnlikeCollectives, AreOfOtherKinds) {
  expect<FailedPrecondition>(
      [](int r, const auto& ctx) {
        if (r == 0) {
          ctx.all_reduce(ReduceOp::kSum, ones({1}));
        } else {
          ctx.all_gather(ones({1}), 0);
        }
      },
      {"all_reduce of sum on replica 0", "all_gather along axis 0 on replica 1"});
  expect<FailedPrecondition>(
      [](int r, const auto& ctx) {
        ctx.all_reduce(r == 0 ? ReduceOp::kSum : ReduceOp::kMean, ones({1}));
      },
      {"all_reduce of sum on replica 0", "all_reduce of mean on replica 1"});
  expect<InvalidArgument>(
      [](int r, const auto& ctx) {
        ctx.all_gather(ones({2, 2}), r);
      },
      {"axis 0", "got 1 on replica 1"});
}

TEST_P(UnlikeCollectives, AForwardOneMeetsABackwardOne) {
  expect<FailedPrecondition>(
      [](int r, const auto& ctx) {
        Tensor x = ones({2});
        GradientTape tape;
        tape.watch(x);
        const Tensor sum = ctx.all_reduce(ReduceOp::kSum, x);
        if (r == 0) {
          tape.gradient(sum.sum(), x);
        } else {
          ctx.all_reduce(ReduceOp::kSum, ones({2}));
        }
      },
      {"the backward pass of all_reduce of sum on replica 0", "all_reduce of sum on replica 1"});
}

TEST_P(UnlikeCollectives, TwoLossesComeInOtherOrder) {
  for (const bool gather : {false, true}) {
    expect<FailedPrecondition>(
        [gather](int r, const auto& ctx) {
          Tensor x = ones({2});
          GradientTape tape({.persistent = true});
          tape.watch(x);
          const auto meet = [&](const Tensor& y) {
            return gather ? ctx.all_gather(y, 0).sum() : ctx.all_reduce(ReduceOp::kSum, y).sum();
          };
          const Tensor one = meet(x * 2);
          const Tensor two = meet(x * 3);
          tape.gradient(r == 0 ? one : two, x);
          tape.gradient(r == 0 ? two : one, x);
        },
        {"order", "replica 0", "replica 1"});
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, UnlikeCollectives, ::testing::Bool());

}  // namespace
}  // namespace cohort
