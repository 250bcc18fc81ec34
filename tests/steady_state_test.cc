// SPDX-License-Identifier: Apache-2.0
//
// A training step that has warmed up asks the system for nothing: its allocations are constant in
// number and served from the cache, and it makes no thread.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <latch>

#include "cohort/base/sanitizers.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/runtime/memory.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"
#include "tests/small_training.h"

namespace {
std::atomic<int> threads_made{0};
}

#if !COHORT_UNDER_SANITIZER
// Every thread of the process is made through this: it stands before the library's own.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  threads_made.fetch_add(1);
  return create(thread, attributes, body, argument);
}
#endif

namespace cohort::proof {
namespace {

using keras::Reduction;

constexpr int kWarmUp = 20;
constexpr int kSteps = 100;

// What is counted at the end of a step.
struct Sample {
  uint64_t allocations = 0;
  uint64_t system_allocations = 0;
  int threads_made = 0;
  std::ptrdiff_t threads = 0;
};

Sample sample() {
  const MemoryStats stats = memory_stats();
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return {stats.allocations, stats.system_allocations, threads_made.load(),
          std::distance(begin(tasks), end(tasks))};
}

// Of the steps after the warm-up: each sample against the one before.
void expect_steady(const std::vector<Sample>& samples) {
  ASSERT_EQ(samples.size(), static_cast<std::size_t>(kWarmUp + kSteps));
  const Sample& first = samples[kWarmUp];
  EXPECT_GE(first.threads, 1);
  for (std::size_t i = kWarmUp + 1; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].threads, first.threads) << "step " << i;
    EXPECT_EQ(samples[i].threads_made, first.threads_made) << "step " << i;
  }
#if !COHORT_UNDER_SANITIZER
  ASSERT_EQ(memory_policy(), MemoryPolicy::kCaching);
  // One replica on a machine where LibTorch needs no second thread has made none; that a thread
  // would have been counted, one shows.
  const int made = threads_made.load();
  std::thread([] {}).join();
  EXPECT_EQ(threads_made.load(), made + 1);
  const uint64_t per_step = samples[kWarmUp + 1].allocations - first.allocations;
  EXPECT_GT(per_step, 0u);
  for (std::size_t i = kWarmUp + 1; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].allocations - samples[i - 1].allocations, per_step) << "step " << i;
  }
  EXPECT_EQ(samples.back().system_allocations, first.system_allocations);
  std::printf("allocations per step: %llu\n", static_cast<unsigned long long>(per_step));
#endif
}

class SteadyState : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, SteadyState, ::testing::Values(1, 2));

TEST_P(SteadyState, OfACustomLoop) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  const keras::Optimizer optimizer = keras::Adam();
  const keras::SparseCategoricalCrossentropy loss(
      {.from_logits = true, .reduction = Reduction::kNone});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor mean = compute_average_loss(loss(y, model(x, {.training = true})));
    optimizer.apply_gradients(tape.gradient(mean, model.trainable_variables()));
    return mean;
  };
  std::vector<Sample> samples;
  samples.reserve(kWarmUp + kSteps);
  const Dataset data = ten_classes({320, kFeatures}).dataset().batch(32).repeat();
  for (const auto& batch : strategy.distribute_dataset(data.take(kWarmUp + kSteps))) {
    strategy.run(step, batch);
    samples.push_back(sample());
  }
  expect_steady(samples);
}

TEST_P(SteadyState, OfFit) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  std::vector<Sample> samples;
  samples.reserve(kWarmUp + kSteps);
  const keras::LambdaCallback count(
      {.on_train_batch_end = [&](int64_t, keras::Logs&) { samples.push_back(sample()); }});
  const Dataset data = ten_classes({320, kFeatures}).dataset().batch(32).repeat();
  model.fit(data, {.callbacks = {count},
                   .verbose = keras::Verbose::kSilent,
                   .steps_per_epoch = kWarmUp + kSteps});
  expect_steady(samples);
}

// A prefetch has its thread, but one for the epoch and not one for each step.
TEST(SteadyStateWithPrefetch, MakesNoThreadPerStep) {
  const Strategy strategy = strategy_of(2);
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  model.compile({.loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
  std::vector<int> made;
  const keras::LambdaCallback count(
      {.on_train_batch_end = [&](int64_t, keras::Logs&) { made.push_back(threads_made.load()); }});
  const Dataset data = ten_classes({320, kFeatures}).dataset().shuffle(320).batch(32).repeat();
  model.fit(data.prefetch(), {.callbacks = {count},
                              .verbose = keras::Verbose::kSilent,
                              .steps_per_epoch = kWarmUp + kSteps});
  ASSERT_EQ(made.size(), static_cast<std::size_t>(kWarmUp + kSteps));
  EXPECT_EQ(made.back(), made[kWarmUp]);
}

// A second meeting is for programs that keep gradients.
TEST(SteadyStateUnderPull, MeetsOnceForTheUpdate) {
  ::setenv("COHORT_UPDATE_SCHEDULE", "pull", 1);
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  ::unsetenv("COHORT_UPDATE_SCHEDULE");
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  std::vector<uint64_t> meetings;
  model.compile({.optimizer = keras::Adam(), .loss = [&](const Tensor&, const Tensor& p) -> Tensor {
                   if (current_replica() == 0) {
                     meetings.push_back(internal::runtime::current_replica_group()->epoch(0));
                   }
                   return p.square().mean(-1);
                 }});
  const Dataset data = ten_classes({320, kFeatures}).dataset().batch(32);
  model.fit(data, {.verbose = keras::Verbose::kSilent});
  ASSERT_EQ(meetings.size(), 10U);
  for (std::size_t i = 5; i < meetings.size(); ++i) {
    EXPECT_EQ(meetings[i] - meetings[i - 1], 2U) << "the start of the run, and the update";
  }
}

// Passes its input on when all replicas are in it.
struct Meeting : keras::LayerBase {
  explicit Meeting(int replicas) : all(replicas) {}
  Tensor call(const Tensor& x, const keras::CallArgs&) override {
    if (calls.fetch_add(1) < replicas()) all.arrive_and_wait();
    return x;
  }
  std::string class_name() const override { return "Meeting"; }
  static int replicas() { return get_strategy().num_replicas_in_sync(); }
  std::latch all;
  std::atomic<int> calls{0};
};

// Replicas that took turns would wait here for ever.
TEST(Concurrency, ReplicasOfFitAreInTheSameLayerAtOnce) {
  testing::run_with_deadline(std::chrono::seconds(60), [] {
    for (int replicas : {2, 4}) {
      const Strategy strategy = strategy_of(replicas);
      const auto scope = strategy.scope();
      const auto meeting = std::make_shared<Meeting>(replicas);
      keras::Sequential model(
          {keras::InputLayer({kFeatures}), keras::Dense(16), meeting, keras::Dense(10)});
      model.compile({.optimizer = "sgd",
                     .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
      model.fit(ten_classes({64, kFeatures}).dataset().batch(32),
                {.verbose = keras::Verbose::kSilent});
      EXPECT_EQ(meeting->calls.load(), 2 * replicas);
    }
  });
}

}  // namespace
}  // namespace cohort::proof
