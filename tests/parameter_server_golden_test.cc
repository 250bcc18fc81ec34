// SPDX-License-Identifier: Apache-2.0
//
// fit and evaluate on parameter servers are those of real Keras on one replica, where one worker
// makes the steps in their order.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "cohort/cohort.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/keras/test_golden_fits.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

using cohort::testing::run_with_deadline;

TEST(ParameterServerGolden, FitsAreThoseOfKerasOnOneReplica) {
  const cohort::testing::TestCluster cluster(1, 2);
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())});
  int refused = 0;
  testing::replay_all_fits(COHORT_GOLDEN, [&](const testing::FitCase& fit) {
    clear_session();
    try {
      run_with_deadline(std::chrono::minutes(2), [&] { fit.replay(strategy); });
    } catch (const Error& error) {  // what docs/parameter_servers.md says that servers refuse
      const std::string text = error.what();
      const auto is_about = [&](const char* option) {
        return fit.sets(option) && text.find(option) != std::string::npos;
      };
      if (!is_about("ema_overwrite_frequency") && !is_about("gradient_accumulation_steps")) throw;
      ++refused;
    }
  });
  EXPECT_LT(refused, 8);
}

}  // namespace
}  // namespace cohort::keras
