// SPDX-License-Identifier: Apache-2.0
//
// Gradients that workers of one machine read where backward passes have left them.
#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/sanitizers.h"
#include "cohort/testing/child.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/test_exchange.h"

namespace cohort::internal::variables {
namespace {

using namespace exchange_test;
using testing::kCanLimitChildren;
using testing::status_of_child;

// AddressSanitizer sees what is between variables, so there each is a run of its own.
constexpr bool kHasRows = COHORT_ADDRESS_SANITIZER == 0;

// All of float32, so in one arena.
WorldOptions in_shared_memory(WorldOptions options = {}) {
  options.carrier = collectives::Carrier::kSharedMemory;
  options.rounds_gradients = true;
  return options;
}

uint64_t copied_by_all(World& world) {
  uint64_t sum = 0;
  for (int rank = 0; rank < world.job.size(); ++rank) sum += world.job[rank].copied();
  return sum;
}

TEST(LentGradients, NothingIsCopiedToBeSent) {
  for (const WorldOptions& clipping : clippings()) {
    for (const int workers : {2, 3}) {
      for (const std::size_t bytes : {std::size_t{4} << 20, std::size_t{20000}}) {
        WorldOptions options = in_shared_memory(clipping);
        options.update.bytes_per_bucket = bytes;
        World world(workers, 1, options);
        for (int step = 0; step < 3; ++step) world.run([&](Worker& w) { w.apply(step); });
        if (kHasRows) {
          EXPECT_EQ(copied_by_all(world), 0U) << workers << " workers, buckets of " << bytes;
        }
        options.carrier = collectives::Carrier::kThreads;
        const Trained process = train(1, workers, options, 3);
        expect_same(world.parameters(), process.parameters, "one process");
        expect_same(world.slots(), process.slots, "one process's slots");
      }
    }
  }
}

// What several replicas have is added up for the others, in memory that these read.
TEST(LentGradients, SumsOfSeveralReplicasAreNoCopies) {
  World world(2, 2, in_shared_memory());
  world.run([](Worker& w) { w.apply(0); });
  EXPECT_EQ(copied_by_all(world), 0U);
}

// One worker has a gradient less, so what it has is no row.
TEST(LentGradients, WhatLiesInNoRowIsCopied) {
  const auto train_two = [](int workers, const WorldOptions& options) {
    World world(workers, 2 / workers, options);
    for (int step = 0; step < 3; ++step) {
      world.run([&](Worker& w) {
        w.group.run([&](int r) {
          const auto lease = std::make_shared<GradientLease>();
          std::vector<GradientAndVariable> pairs;
          for (std::size_t v = 0; v < w.variables.size(); ++v) {
            if (w.first() + r == 1 && v == 1) continue;
            const Tensor place = lease->place(w.variables[v].impl());
            pairs.push_back({place.copy_(w.gradient(v, r, step).dense()), w.variables[v]});
          }
          w.update->apply(Gradients(std::move(pairs), lease), adam_step({}, step + 1));
        });
      });
    }
    if (workers == 2) {
      if (kHasRows) {
        EXPECT_EQ(world.job[0].copied(), 0U);
      }
      EXPECT_GT(world.job[1].copied(), 0U);
    }
    return Trained{world.parameters(), world.slots()};
  };
  WorldOptions process = in_shared_memory();
  process.carrier = collectives::Carrier::kThreads;
  EXPECT_EQ(train_two(2, in_shared_memory()), train_two(1, process));
}

// As soon as apply() has returned, whoever is slow: all others have read them.
TEST(LentGradients, MayBeWrittenBehindTheStep) {
  constexpr int kSteps = 40;
  World world(3, 1, in_shared_memory());
  world.run([](Worker& w) {
    for (int step = 0; step < kSteps; ++step) {
      Gradients mine = w.gradients(0, step);
      w.group.run([&](int) { w.update->apply(mine, adam_step({}, step + 1), 0.001); });
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i].gradient.dense().fill_(std::numeric_limits<double>::quiet_NaN());
      }
    }
  });
  WorldOptions process = in_shared_memory();
  process.carrier = collectives::Carrier::kThreads;
  World plain(1, 3, process);
  for (int step = 0; step < kSteps; ++step) {
    plain.run([&](Worker& w) {
      w.group.run(
          [&](int r) { w.update->apply(w.gradients(r, step), adam_step({}, step + 1), 0.001); });
    });
  }
  expect_same(world.parameters(), plain.parameters(), "one process");
}

TEST(LentGradients, OutliveTheJob) {
  Tensor kept;
  {
    World world(2, 1, in_shared_memory());
    const Gradients gradients = world[0].gradients(0, 7);
    kept = gradients[2].gradient.dense();
    world.run([](Worker& w) { w.apply(0); });
  }
  const Worker plain(1, nullptr, in_shared_memory());
  EXPECT_TRUE(kept.equal(plain.gradient(2, 0, 7).dense()));
}

TEST(LentGradients, AChildOfForkChangesNoneOfThem) {
  if (!kCanLimitChildren) GTEST_SKIP();
  World world(2, 1, in_shared_memory());
  world.run([](Worker& w) { w.apply(0); });
  const Gradients gradients = world[0].gradients(0, 1);
  const Tensor before = gradients[2].gradient.dense().clone();
  EXPECT_EQ(status_of_child([&] {
              GradientLease lease;
              for (const Variable& v : world[0].variables) lease.place(v.impl()).fill_(99);
              world[0].update.reset();
              world[0].variables.clear();
              return 0;
            }),
            0);
  EXPECT_TRUE(gradients[2].gradient.dense().equal(before));
  world.run([](Worker& w) { w.apply(1); });
  if (kHasRows) {
    EXPECT_EQ(copied_by_all(world), 0U) << "peers find its memory as before";
  }
}

// Every rank would have to map all of it.
TEST(LentGradients, AreCopiedWhereAddressSpaceIsLimited) {
  if (!kCanLimitChildren) GTEST_SKIP();
  EXPECT_EQ(status_of_child([] {
              testing::limit_address_space(std::size_t{8} << 30);
              World world(2, 1, in_shared_memory());
              world.run([](Worker& w) { w.apply(0); });
              return copied_by_all(world) > 0 && !world.parameters().empty() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace cohort::internal::variables
