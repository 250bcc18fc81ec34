// SPDX-License-Identifier: Apache-2.0
//
// kAutotune: its decisions on models of pipelines, and pipelines that use it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "cohort/data/core/internal/core_budget.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/threads/buffer_tuner.h"
#include "cohort/data/pipeline/internal/threads/parallelism_tuner.h"

namespace cohort {
namespace {

using internal::data::BufferTuner;
using internal::data::CoreBudget;
using internal::data::ParallelismTuner;
using internal::data::TuneWindow;

constexpr double kMicro = 1e-6;
constexpr double kMilli = 1e-3;

/// A step and its reader, in seconds for each element.
struct Model {
  double call = 0;
  double on_core = 1;  ///< Share of the call.
  double reader = 0;
  double hand_over = 5 * kMicro;
  double cores = 2;

  TuneWindow window(int calls) const {
    constexpr int64_t kOutputs = 100;
    double each = reader + call;
    double waited = call;
    if (calls > 1) {
      const double at_once = std::min<double>(calls, cores / on_core);
      each = std::max(reader, std::max(call / at_once, hand_over));
      waited = each - reader;
    }
    TuneWindow out{.seconds = kOutputs * each, .outputs = kOutputs, .waited = kOutputs * waited};
    out.processor = kOutputs * call * on_core;
    out.blocks = on_core < 1;
    out.busy = kOutputs * call;
    return out;
  }
};

/// Settings of `windows` decisions.
std::vector<int> run(ParallelismTuner& tuner, const Model& model, int windows, int most = 64) {
  std::vector<int> settings;
  for (int i = 0; i < windows; ++i) {
    settings.push_back(tuner.decide(model.window(tuner.setting()), model.cores, most));
  }
  return settings;
}
int most_of(const std::vector<int>& settings) {
  return *std::max_element(settings.begin(), settings.end());
}

TEST(ParallelismTuner, CallsThatComputeFillTheCoresAndNoMore) {
  ParallelismTuner tuner;
  const auto settings = run(tuner, {.call = kMilli, .cores = 4}, 50);
  EXPECT_EQ(most_of(settings), 4);
  EXPECT_EQ(settings.back(), 4);
  EXPECT_EQ(tuner.cores_used(), 4);
}

TEST(ParallelismTuner, CallsThatWaitGoFarBeyondTheCores) {
  ParallelismTuner tuner;
  const auto settings = run(tuner, {.call = kMilli, .on_core = 0.01}, 20);
  EXPECT_EQ(settings.back(), 64);
  EXPECT_EQ(std::vector<int>(settings.begin(), settings.begin() + 3), (std::vector<int>{2, 4, 8}));
  ParallelismTuner limited;
  EXPECT_EQ(run(limited, {.call = kMilli, .on_core = 0.01}, 20, 10).back(), 10);
  // No more than keep the cores computing.
  ParallelismTuner half;
  EXPECT_EQ(run(half, {.call = kMilli, .on_core = 0.25, .cores = 2}, 20).back(), 8);
}

TEST(ParallelismTuner, SettlesAtOneWhereTheReaderDoesNotWait) {
  ParallelismTuner tuner;
  EXPECT_EQ(most_of(run(tuner, {.call = 10 * kMicro, .reader = kMilli}, 200)), 1);
}

TEST(ParallelismTuner, LeavesLightCallsOnTheReadersThread) {
  ParallelismTuner tuner;
  EXPECT_EQ(most_of(run(tuner, {.call = kMicro}, 200)), 1);
}

TEST(ParallelismTuner, GoesBackWhereMoreCallsHurtAndTriesEverMoreSeldom) {
  ParallelismTuner tuner;
  const auto settings = run(tuner, {.call = 20 * kMicro, .hand_over = 30 * kMicro}, 600);
  EXPECT_EQ(most_of(settings), 2);
  EXPECT_LT(std::count(settings.begin(), settings.end(), 2), 12);
  EXPECT_EQ(std::count(settings.begin() + 300, settings.end(), 2), 1);
}

TEST(ParallelismTuner, TakesWhatTheReaderNeeds) {
  ParallelismTuner tuner;
  const Model model{.call = 3 * kMilli, .on_core = 0.01, .reader = kMilli};
  const auto settings = run(tuner, model, 100);
  for (auto i = settings.begin() + 10; i != settings.end(); ++i) {
    EXPECT_GE(*i, 3);
    EXPECT_LE(*i, 4);
  }
}

TEST(ParallelismTuner, ComesDownWhenTheReaderIsBusy) {
  ParallelismTuner tuner;
  Model model{.call = kMilli, .on_core = 0.01};
  EXPECT_EQ(run(tuner, model, 20).back(), 64);
  model.reader = 10 * kMilli;
  EXPECT_EQ(run(tuner, model, 2).back(), 64);  // It may only make a pause.
  EXPECT_EQ(run(tuner, model, 2).back(), 2);
  model.reader = 100 * kMilli;
  EXPECT_EQ(run(tuner, model, 6).back(), 1);
  EXPECT_EQ(most_of(run(tuner, model, 100)), 1);
}

TEST(ParallelismTuner, DoesNotFeedThreadsThatWaitForTheirInput) {
  ParallelismTuner tuner;
  const Model model{.call = kMilli, .on_core = 0.01};
  run(tuner, model, 3);
  EXPECT_EQ(tuner.setting(), 8);
  // The input gives an element every 2 ms: the threads run a sixteenth of their time.
  TuneWindow starved{.seconds = 0.2, .outputs = 100, .waited = 0.2, .busy = 0.1, .blocks = true};
  starved.processor = 0.001;
  tuner.decide(starved, 2, 64);
  for (int i = 0; i < 20; ++i) EXPECT_LE(tuner.decide(starved, 2, 64), 8);
}

TEST(CoreBudget, SharesCoresAndThreads) {
  CoreBudget budget(4, data::kAutotune);
  CoreBudget::Use first;
  CoreBudget::Use second;
  budget.change(first, {.cores = 3, .threads = 3});
  EXPECT_EQ(budget.cores_for(second), 1);
  EXPECT_EQ(budget.cores_for(first), 4);
  EXPECT_EQ(budget.calls_for(second, 64), 64);
  budget.change(first, {});
  EXPECT_EQ(budget.cores_for(second), 4);
  CoreBudget limited(4, 5);
  limited.change(first, {.cores = 1, .threads = 3});
  EXPECT_EQ(limited.calls_for(first, 64), 5);
  EXPECT_EQ(limited.calls_for(second, 64), 2);
  limited.change(first, {.cores = 1, .threads = 4});
  EXPECT_EQ(limited.calls_for(second, 64), 1);
}

TEST(BufferTuner, GrowsForUnevenStepsOnly) {
  BufferTuner slow(1 << 20);
  for (int i = 0; i < 100; ++i) {
    slow.filled(1);
    slow.reader_asks(0, 8);
  }
  EXPECT_EQ(slow.capacity(), 2U);  // Never full: the step before is slow.
  BufferTuner uneven(1 << 20);
  for (int i = 0; i < 3; ++i) {
    uneven.filled(uneven.capacity());
    uneven.reader_asks(0, 8);
    uneven.reader_asks(0, 8);
  }
  EXPECT_EQ(uneven.capacity(), 16U);
  for (int i = 0; i < 20; ++i) {
    uneven.filled(uneven.capacity());
    uneven.reader_asks(0, 8);
  }
  EXPECT_EQ(uneven.capacity(), 512U);
}

TEST(BufferTuner, KeepsManyElementsInTheCache) {
  const auto settles_at = [](int64_t element_bytes) {
    BufferTuner tuner(int64_t{1} << 30);
    for (int i = 0; i < 20; ++i) {
      tuner.filled(tuner.capacity());
      tuner.reader_asks(0, element_bytes);
    }
    return tuner.capacity();
  };
  EXPECT_EQ(settles_at(1 << 20), 8U);
  EXPECT_EQ(settles_at(100 << 20), 4U);
  EXPECT_EQ(settles_at(300 << 20), 2U);
}

TEST(BufferTuner, StaysWithinItsMemory) {
  BufferTuner tuner(1000);
  for (int i = 0; i < 20; ++i) {
    tuner.filled(tuner.capacity());
    tuner.reader_asks(0, 100);
  }
  EXPECT_EQ(tuner.capacity(), 8U);
}

// --- Pipelines -----------------------------------------------------------------------------------

Dataset tuned(const Dataset& source, std::function<int64_t(int64_t)> fn) {
  return source.map(std::move(fn), {.parallel_calls = data::kAutotune}).prefetch(data::kAutotune);
}
int64_t remote(int64_t x) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // The work: waiting.
  return x;
}
Dataset with_report(const Dataset& dataset, DataOptions options = {}) {
  options.report = true;
  return dataset.with_options(options);
}

TEST(Autotune, AddsThreadsForCallsThatWaitAndKeepsTheOrder) {
  auto it = with_report(tuned(Dataset::range(1200), remote)).make_iterator();
  for (int64_t i = 0; i < 1200; ++i) ASSERT_EQ(it.next()->as<int64_t>(), i);
  EXPECT_FALSE(it.next());
  EXPECT_GT(it.report().nodes[1].threads, 1) << it.report().to_string();
}

TEST(Autotune, StaysOnOneThreadForAReaderThatNeverWaits) {
  auto it = with_report(tuned(Dataset::range(100), [](int64_t x) { return x; })).make_iterator();
  while (it.next()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // Its work.
  EXPECT_EQ(it.report().nodes[1].threads, 0) << it.report().to_string();
}

TEST(Autotune, KeepsToTheThreadsOfTheOptions) {
  for (const int threads : {1, 3}) {
    auto it = with_report(tuned(Dataset::range(400), remote), {.threads = threads}).make_iterator();
    while (it.next()) continue;
    EXPECT_LE(it.report().nodes[1].threads, threads == 1 ? 0 : threads);
  }
  EXPECT_THROW(Dataset::range(3).with_options({.threads = 0}), InvalidArgument);
}

TEST(Autotune, InterleavesInTheOrderOfOneThread) {
  auto open = [](int64_t x) { return Dataset::range(100 * x, 100 * x + 30).map(remote); };
  auto read = [&](int parallel_calls) {
    std::vector<int64_t> out;
    for (const Element& e : Dataset::range(20).interleave(
             open, {.cycle_length = 8, .parallel_calls = parallel_calls})) {
      out.push_back(e.as<int64_t>());
    }
    return out;
  };
  EXPECT_EQ(read(data::kAutotune), read(8));
}

TEST(Autotune, PositionsLoseNothingWhileItTunes) {
  auto make = [] { return tuned(Dataset::range(500), remote).map(remote, {.parallel_calls = 4}); };
  auto it = make().make_iterator();
  for (int64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(it.next()->as<int64_t>(), i);
    if (i % 50 == 7) it = make().make_iterator(it.save());
  }
  EXPECT_FALSE(it.next());
}

}  // namespace
}  // namespace cohort
