// SPDX-License-Identifier: Apache-2.0
//
// Layers compute under every strategy what real Keras's compute alone: each replica gets the whole
// of a case (golden/layers/*.json), so outputs, gradients and statistics of all are those.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "cohort/keras/test_golden_layers.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

using testing::LayerCase;
using testing::LayerOnDevice;

// Sums over two replicas, and over threads within operations, round once more.
constexpr double kRounding = 2e-6;

std::string differences_under(const Strategy& strategy, const LayerCase& one) {
  return LayerOnDevice(one, strategy, "CPU:0").differences(kRounding);
}

// `differences` of every case.
void expect_none(const std::function<std::string(const LayerCase&)>& differences) {
  std::string all;
  int wrong = 0, count = 0;
  for (const LayerCase& one : testing::layer_cases(COHORT_GOLDEN)) {
    ++count;
    const std::string found = differences(one);
    if (found.empty()) continue;
    ++wrong;
    all += one.name + ":\n" + found;
  }
  EXPECT_GT(count, 400);
  EXPECT_EQ(wrong, 0) << wrong << " of " << count << " cases:\n" << all;
}
void expect_none_under(const Strategy& strategy) {
  expect_none([&](const LayerCase& one) { return differences_under(strategy, one); });
}

TEST(GoldenLayersUnder, OneDeviceStrategy) { expect_none_under(OneDeviceStrategy("CPU:0")); }

TEST(GoldenLayersUnder, MirroredStrategyOfTwo) {
  expect_none_under(MirroredStrategy({"CPU:0", "CPU:1"}));
}

TEST(GoldenLayersUnder, CentralStorageStrategyOfTwo) {
  expect_none_under(CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}}));
}

TEST(GoldenLayersUnder, TwoWorkers) {
  const cohort::testing::Workers workers(2, 1);
  expect_none([&](const LayerCase& one) {
    std::string all;
    for (const std::string& found :
         cohort::testing::run_with_deadline(std::chrono::minutes(1), [&] {
           return workers.run(
               [&](const Strategy& strategy) { return differences_under(strategy, one); });
         })) {
      all += found;
    }
    return all;
  });
}

}  // namespace
}  // namespace cohort::keras
