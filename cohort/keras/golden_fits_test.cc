// SPDX-License-Identifier: Apache-2.0
//
// fit and evaluate under the strategies of replicas and workers are those of real Keras on one
// replica.
#include <gtest/gtest.h>

#include <chrono>

#include "cohort/keras/test_golden_fits.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

using cohort::testing::run_with_deadline;
using cohort::testing::strategy_of;
using testing::FitCase;

template <class Replay>
void replay_all(const Replay& replay) {
  testing::replay_all_fits(COHORT_GOLDEN, replay);
}

class GoldenFits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, GoldenFits, ::testing::Values(1, 2, 3));

TEST_P(GoldenFits, AreThoseOfKerasOnOneReplica) {
  replay_all([](const FitCase& fit) { fit.replay(strategy_of(GetParam())); });
}

TEST(GoldenFitsUnder, CentralStorageStrategyOfTwo) {
  const CentralStorageStrategy strategy({.compute_devices = {"CPU:0", "CPU:1"}});
  replay_all([&](const FitCase& fit) { fit.replay(strategy); });
}

class GoldenFitsOfWorkers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, GoldenFitsOfWorkers, ::testing::Values(1, 2));

TEST_P(GoldenFitsOfWorkers, AreThoseOfKerasOnOneReplica) {
  replay_all([](const FitCase& fit) {
    const cohort::testing::Workers workers(2, GetParam());
    run_with_deadline(std::chrono::minutes(1), [&] {
      workers.each([&](const Strategy& strategy) { fit.replay(strategy); });
    });
  });
}

}  // namespace
}  // namespace cohort::keras
