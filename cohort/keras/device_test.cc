// SPDX-License-Identifier: Apache-2.0
//
// Models on GPUs that are pretended: nothing reads a device's memory, mixes devices, or waits.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cohort/keras/keras.h"
#include "cohort/keras/test_device.h"
#include "cohort/keras/test_device_checks.h"
#include "cohort/keras/test_golden_layers.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/child.h"

namespace cohort::keras {
namespace {

// How often the host waits in an epoch of so many steps, the second one of its fit.
int64_t waits_of_epochs(const testing::ModelCase& one, const testing::PretendedGpus& gpus,
                        int64_t steps) {
  const OneDeviceStrategy strategy("GPU:0");
  const Scope scope = strategy.scope();
  Sequential model(one.layers());
  std::vector<Metric> metrics;
  for (const Metric& metric : one.metrics) metrics.push_back(Metric(metric.name()));
  model.compile({.optimizer = Optimizer::deserialize(one.optimizer.serialize()),
                 .loss = one.loss,
                 .metrics = metrics});
  const auto epoch = [&] {
    model.fit(one.x.narrow(0, 0, 8 * steps), one.y.narrow(0, 0, 8 * steps),
              {.batch_size = 8, .verbose = Verbose::kSilent, .shuffle = false});
  };
  epoch();
  const int64_t before = gpus.waits();
  epoch();
  return gpus.waits() - before;
}

// What body() says in a child, for what touches a device's memory dies.
template <class Body>
std::string said_by_child(const Body& body) {
  const std::string file = str_cat(::testing::TempDir(), "/device_test_", getpid());
  std::remove(file.c_str());
  const int status = testing::status_of_child([&] {
    const std::string text = body();
    std::ofstream(file) << text;
    return 0;
  });
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (status != 0) text += str_cat("  ends with ", status, "\n");
  return text;
}

TEST(PretendedGpus, LayersComputeWhatKerasComputes) {
  const char* const only = std::getenv("COHORT_TEST_LAYER");
  std::string all;
  for (const testing::LayerCase& one : testing::layer_cases(COHORT_GOLDEN)) {
    if (only != nullptr && one.name.find(only) == std::string::npos) continue;
    const std::string differences = said_by_child([&] {
      const testing::PretendedGpus gpus;
      return testing::LayerOnDevice(one, OneDeviceStrategy("GPU:0"), "GPU:0").differences(1e-5);
    });
    if (!differences.empty()) all += one.name + ":\n" + differences;
  }
  EXPECT_EQ(all, "");
}

TEST(PretendedGpus, LossesAreThoseOfTheCpu) {
  EXPECT_EQ(said_by_child([] {
              const testing::PretendedGpus gpus;
              return testing::loss_differences(OneDeviceStrategy("GPU:0"), "GPU:0", 1e-5);
            }),
            "");
}

TEST(PretendedGpus, MetricsAreThoseOfTheCpu) {
  EXPECT_EQ(said_by_child([] {
              const testing::PretendedGpus gpus;
              return testing::metric_differences(OneDeviceStrategy("GPU:0"), "GPU:0", 1e-6);
            }),
            "");
}

TEST(PretendedGpus, TrainingIsThatOfTheCpu) {
  EXPECT_EQ(said_by_child([] {
              const testing::PretendedGpus gpus;
              return testing::training_differences(OneDeviceStrategy("GPU:0"), 1e-3);
            }),
            "");
}

TEST(PretendedGpus, TwoReplicasTrainAsTwoOfTheCpu) {
  EXPECT_EQ(said_by_child([] {
              const testing::PretendedGpus gpus;
              return testing::training_differences(MirroredStrategy({"GPU:0", "GPU:1"}), 1e-3,
                                                   MirroredStrategy({"CPU:0", "CPU:1"}));
            }),
            "");
}

TEST(PretendedGpus, StepsReadNothing) {
  EXPECT_EQ(said_by_child([] {
              std::string all;
              for (const testing::ModelCase& one : testing::model_cases()) {
                const testing::PretendedGpus gpus;
                const int64_t few = waits_of_epochs(one, gpus, 2);
                const int64_t many = waits_of_epochs(one, gpus, 6);
                if (few != many) all += str_cat(one.name, ": ", many - few, " in 4 steps\n");
              }
              return all;
            }),
            "");
}

}  // namespace
}  // namespace cohort::keras
