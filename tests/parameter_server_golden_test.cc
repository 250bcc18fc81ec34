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
#include "cohort/keras/test_device_checks.h"
#include "cohort/keras/test_golden_fits.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

using cohort::testing::run_with_deadline;

// Of whole variables, and of such as are cut into shards.
class ParameterServerGolden : public ::testing::TestWithParam<bool> {
 protected:
  const cohort::testing::TestCluster cluster_{1, 2};
  const ParameterServerStrategy strategy_{
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster_.spec()),
       .variable_partitioner =
           GetParam() ? Partitioner(fixed_shards_partitioner(2)) : Partitioner()}};
};
INSTANTIATE_TEST_SUITE_P(Shards, ParameterServerGolden, ::testing::Bool());

TEST_P(ParameterServerGolden, FitsAreThoseOfKerasOnOneReplica) {
  int refused = 0;
  testing::replay_all_fits(COHORT_GOLDEN, [&](const testing::FitCase& fit) {
    clear_session();
    try {
      run_with_deadline(std::chrono::minutes(2), [&] { fit.replay(strategy_); });
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

TEST_P(ParameterServerGolden, NetworksTrainAsOnOneDevice) {
  if (GetParam()) GTEST_SKIP() << "each shard draws first values of its own";
  clear_session();
  EXPECT_EQ(run_with_deadline(std::chrono::minutes(2),
                              [&] { return testing::training_differences(strategy_, 1e-5); }),
            "");
}

}  // namespace
}  // namespace cohort::keras
