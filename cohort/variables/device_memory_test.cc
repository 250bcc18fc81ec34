// SPDX-License-Identifier: Apache-2.0
//
// Variables of devices that are no CPUs: their memory, copies and kernels are the devices' own.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cohort/runtime/internal/test_backend.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/internal/test_replicas.h"
#include "cohort/variables/test_exchange.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::internal::variables {
namespace {

/// The CPU's, for the GPUs of TestBackend.
class TestKernels final : public UpdateKernels {
 public:
  TestKernels() : before_(exchange_update_kernels(c10::kCUDA, this)) {}
  ~TestKernels() override { exchange_update_kernels(c10::kCUDA, before_); }
  void update(const RangeUpdate& range, const update_rules::Rule& rule,
              const update_rules::UpdateOptions& how) override {
    ++updates;
    cpu_.update(range, rule, how);
  }
  void update_rows(const RowsUpdate& table, const update_rules::Rule& rule,
                   const update_rules::UpdateOptions& how) override {
    ++updates;
    cpu_.update_rows(table, rule, how);
  }
  double sum_of_squares(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                        std::size_t end) override {
    ++norms;
    return cpu_.sum_of_squares(dtype, sources, begin, end);
  }
  void block_square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t size,
                         std::size_t first, std::span<double> out) override {
    ++norms;
    cpu_.block_square_sums(dtype, sources, size, first, out);
  }
  std::atomic<int> updates{0};
  std::atomic<int> norms{0};

 private:
  UpdateKernels& cpu_ = update_kernels(runtime::host_device());
  UpdateKernels* const before_;
};

/// Two replicas, three steps of Adam; every component afterwards.
std::vector<std::vector<double>> train(const std::vector<Device>& devices,
                                       LocalVariablesOptions options = {}) {
  runtime::ReplicaGroup group({.replicas = static_cast<int>(devices.size())});
  options.devices = devices;
  options.group = &group;
  const auto creator = std::make_shared<LocalVariables>(options);
  const VariableCreatorScope scope(creator);
  const std::vector<Variable> variables = {Variable(ones({3, 5})), Variable(zeros({7}))};
  FusedUpdate update(variables, {.slot_initial = {0, 0.5}, .global_clipnorm = 1.0});
  for (int step = 1; step <= 3; ++step) {
    group.run([&](int replica) {
      const auto lease = std::make_shared<GradientLease>();
      std::vector<GradientAndVariable> gradients;
      for (const Variable& v : variables) {
        gradients.push_back({lease->place(v.impl()).fill_(0.1 * (replica + step)), v});
      }
      update.apply(Gradients(gradients, lease), update_rules::adam_step({}, step));
    });
  }
  std::vector<std::vector<double>> out;
  for (const Variable& v : variables) {
    for (const Variable& one : v.components()) out.push_back(to_vector<double>(one.value()));
  }
  return out;
}

// How many arenas there are, and so calls, depends on the build (AddressSanitizer's are small).

TEST(DeviceMemory, ParametersGradientsAndSlotsAreTheReplicasDevices) {
  const auto expected = train({"CPU:0", "CPU:1"}, {.schedule = UpdateSchedule::kPull});
  runtime::TestBackend gpus;
  const TestKernels kernels;
  EXPECT_EQ(train({"GPU:0", "GPU:1"}, {.schedule = UpdateSchedule::kPull}), expected);
  for (const char* device : {"GPU:0", "GPU:1"}) {
    // Parameters, gradients, two slots.
    EXPECT_GE(gpus.log().count(str_cat("reserve ", device)), 4) << device;
    EXPECT_GE(gpus.log().count(str_cat("use ", device)), 6) << device;
    EXPECT_GE(gpus.log().count(str_cat("view ", device)), 5) << device;
    EXPECT_GT(gpus.log().count(str_cat("clear ", device)), 0) << device;
  }
  EXPECT_GE(kernels.updates, 2 * 3);
  EXPECT_GT(kernels.norms, 0);
}

TEST(DeviceMemory, SlicesAreCopiedByTheDevices) {
  const auto expected = train({"CPU:0", "CPU:1"}, {.schedule = UpdateSchedule::kSharded});
  runtime::TestBackend gpus;
  const TestKernels kernels;
  EXPECT_EQ(train({"GPU:0", "GPU:1"}, {.schedule = UpdateSchedule::kSharded}), expected);
  const auto forth = gpus.log().count("copy GPU:0 to GPU:1");
  const auto back = gpus.log().count("copy GPU:1 to GPU:0");
  EXPECT_GE(forth + back, 2 * 3);
  EXPECT_EQ(gpus.log().count("copy"), forth + back);
}

TEST(DeviceMemory, EachReplicaHasItsOwnKindOfMemory) {
  const auto expected = train({"CPU:0", "CPU:1"}, {.schedule = UpdateSchedule::kSharded});
  runtime::TestBackend gpus;
  const TestKernels kernels;
  EXPECT_EQ(train({"CPU:0", "GPU:1"}, {.schedule = UpdateSchedule::kSharded}), expected);
  const auto reserved = gpus.log().count("reserve GPU:1");
  EXPECT_GE(reserved, 2);
  EXPECT_EQ(gpus.log().count("reserve"), reserved) << "the CPU's comes from the CPU's";
  const auto there = gpus.log().count("copy CPU:0 to GPU:1");
  const auto here = gpus.log().count("copy GPU:1 to CPU:0");
  EXPECT_GE(there + here, 2 * 3);
  EXPECT_EQ(gpus.log().count("copy"), there + here);
  EXPECT_GE(kernels.updates, 3);
}

TEST(DeviceMemory, CentralParametersAreWhereTheyAreWanted) {
  const LocalVariablesOptions central{.placement = ParameterPlacement::kCentral,
                                      .parameter_device = "GPU:7"};
  const auto expected = train({"CPU:0", "CPU:1"}, {.placement = ParameterPlacement::kCentral});
  runtime::TestBackend gpus;
  const TestKernels kernels;
  EXPECT_EQ(train({"CPU:0", "CPU:1"}, central), expected);
  const auto reserved = gpus.log().count("reserve GPU:7");
  EXPECT_GE(reserved, 3) << "parameters and two slots";
  EXPECT_EQ(gpus.log().count("reserve"), reserved);
}

// Messages carry the host's memory: the workers' sums go over it.
TEST(DeviceMemory, MayBeThatOfSeveralWorkers) {
  using exchange_test::WorldOptions;
  for (const UpdaterOptions& how : {UpdaterOptions{}, UpdaterOptions{.global_clipnorm = 2.0}}) {
    const auto expected = exchange_test::train(2, 1, WorldOptions{.update = how});
    const auto one_process = exchange_test::train(1, 4, WorldOptions{.update = how});
    runtime::TestBackend gpus;
    const TestKernels kernels;
    const auto alone = exchange_test::train(2, 1, WorldOptions{.update = how, .on_gpus = true});
    // Norms are taken variable by variable, where nobody has a whole run.
    EXPECT_TRUE(alone == expected || how.global_clipnorm);
    EXPECT_GT(kernels.updates, 0);
    const auto two = exchange_test::train(2, 2, WorldOptions{.update = how, .on_gpus = true});
    ASSERT_EQ(two.parameters.size(), one_process.parameters.size());
    for (std::size_t i = 0; i < two.parameters.size(); ++i) {
      ASSERT_NEAR(alone.parameters[i], expected.parameters[i], 2e-5) << i;
      ASSERT_NEAR(two.parameters[i], one_process.parameters[i], 2e-5) << i;
    }
  }
}

TEST(DeviceMemory, AnOptimizerNeedsKernelsOfTheDevice) {
  if (runtime::device_part(c10::kCUDA, "update_kernels") != nullptr) {
    GTEST_SKIP() << "there are kernels for GPUs here";
  }
  runtime::TestBackend gpus;
  testing::expect_error<Unimplemented>({"[optimizer] expected variables on CPUs, got GPU:0"},
                                       [] { train({"GPU:0"}); });
}

TEST(DeviceMemory, VariablesNeedADeviceThatIsSupported) {
  testing::expect_error<Unimplemented>({"got TPU:0: not supported"}, [] {
    train({"CPU:0", "TPU:0"});
  });
}

}  // namespace
}  // namespace cohort::internal::variables
