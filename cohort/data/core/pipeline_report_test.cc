// SPDX-License-Identifier: Apache-2.0
//
// Pipeline reports: what they count, and whom they blame.
#include "cohort/data/core/pipeline_report.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/stage.h"
#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using data::NodeReport;
using data::PipelineReport;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

int64_t same(int64_t x) { return x; }
int64_t slow(int64_t x) {
  std::this_thread::sleep_for(milliseconds(2));  // The work: 2 ms at least.
  return x;
}

Iterator with_report(const Dataset& dataset) {
  DataOptions options = dataset.options();
  options.report = true;
  return dataset.with_options(options).make_iterator();
}
PipelineReport report_of_pass(const Dataset& dataset) {
  auto it = with_report(dataset);
  while (it.next()) continue;
  return it.report();
}
std::vector<std::string> paths(const PipelineReport& report) {
  std::vector<std::string> out;
  for (const NodeReport& node : report.nodes) out.push_back(node.path);
  return out;
}
std::string bottleneck(const PipelineReport& report) {
  return report.bottleneck < 0 ? "none" : report.nodes[report.bottleneck].path;
}

TEST(PipelineReport, HasToBeAskedFor) {
  auto it = Dataset::range(3).make_iterator();
  EXPECT_THROW(static_cast<void>(it.report()), FailedPrecondition);
}

TEST(PipelineReport, CountsEveryStepFromTheReaderOn) {
  const PipelineReport report = report_of_pass(Dataset::range(10)
                                                   .map(same)
                                                   .filter([](int64_t x) { return x % 2 == 0; })
                                                   .map(same, {.parallel_calls = 3})
                                                   .batch(2)
                                                   .prefetch(4));
  EXPECT_EQ(paths(report), (std::vector<std::string>{
                               "range.map.filter.map.batch.prefetch", "range.map.filter.map.batch",
                               "range.map.filter.map", "range.map.filter", "range.map", "range"}));
  std::vector<int64_t> elements;
  std::vector<int> threads;
  for (const NodeReport& node : report.nodes) {
    elements.push_back(node.elements);
    threads.push_back(node.threads);
  }
  EXPECT_EQ(elements, (std::vector<int64_t>{3, 3, 5, 5, 10, 10}));
  EXPECT_EQ(threads, (std::vector<int>{1, 0, 3, 0, 0, 0}));
  EXPECT_EQ(report.nodes[0].buffer_capacity, 4);
  EXPECT_LE(report.nodes[0].buffer_max, 4);
  EXPECT_GE(report.elapsed, report.waited);
}

TEST(PipelineReport, BlamesTheSlowStepThroughThreads) {
  const Dataset pipeline = Dataset::range(20).map(same).map(slow).map(same).prefetch(2);
  const PipelineReport report = report_of_pass(pipeline);
  EXPECT_EQ(bottleneck(report), "range.map.map");
  EXPECT_GE(report.nodes[2].own, milliseconds(40));
  EXPECT_GE(report.nodes[2].waited, report.nodes[2].own);
  EXPECT_NE(report.to_string().find("<- bottleneck"), std::string::npos);
  const Dataset threaded = Dataset::range(40).map(same).map(slow, {.parallel_calls = 2}).batch(4);
  EXPECT_EQ(bottleneck(report_of_pass(threaded.prefetch(1))), "range.map.map");
}

TEST(PipelineReport, PutsTheDatasetsOfAnInterleaveTogether) {
  auto open = [](int64_t x) { return Dataset::range(x, x + 4).map(slow); };
  for (const int threads : {1, 2}) {
    const PipelineReport report = report_of_pass(
        Dataset::range(5).interleave(open, {.cycle_length = 2, .parallel_calls = threads}));
    EXPECT_EQ(paths(report),
              (std::vector<std::string>{"range.interleave", "range", "range.interleave > range.map",
                                        "range.interleave > range"}));
    EXPECT_EQ(report.nodes[2].elements, 20);
    EXPECT_EQ(bottleneck(report), "range.interleave > range.map");
  }
}

TEST(PipelineReport, PutsWindowsTogetherHoweverMany) {
  const auto twice = [](int64_t, const Dataset& window) {
    return window.batch(2).repeat(2).concatenate(window.batch(4));
  };
  for (const int64_t windows : {1, 50}) {
    const auto report =
        report_of_pass(Dataset::range(4 * windows)
                           .map(same)
                           .group_by_window([](int64_t) { return int64_t{0}; }, twice, 4));
    const std::string group = "range.map.group_by_window";
    EXPECT_EQ(paths(report),
              (std::vector<std::string>{group, "range.map", "range",
                                        group + " > window.batch.repeat.concatenate",
                                        group + " > window.batch.repeat", group + " > window.batch",
                                        group + " > window.batch"}));
    EXPECT_EQ(report.nodes[0].elements, 5 * windows);
    EXPECT_EQ(report.nodes[5].elements, 4 * windows);
  }
}

class Stored : public testing::FilesTest {};

TEST_F(Stored, ElementsAreReadByOneStep) {
  const auto report = report_of_pass(Dataset::range(3).map(same).cache(path("c")).repeat(20));
  EXPECT_EQ(paths(report),
            (std::vector<std::string>{"range.map.cache.repeat", "range.map.cache", "range.map",
                                      "range", "range.map.cache > element_file"}));
  EXPECT_EQ(report.nodes.back().elements, 19 * 3);
}

TEST(PipelineReport, KeepsCountingAcrossPassesOfARepeatAndAfterAPosition) {
  auto it = with_report(Dataset::range(4).map(same).prefetch(1).repeat(3));
  for (int i = 0; i < 6; ++i) it.next();
  it.restore(it.save());
  while (it.next()) continue;
  const PipelineReport report = it.report();
  EXPECT_EQ(report.nodes.size(), 4U);
  EXPECT_EQ(report.nodes[0].elements, 12);
}

TEST(PipelineReport, TimeOfGatheringRowsIsTheBatchsOwn) {
  const Dataset rows = Dataset::from_tensor_slices(zeros({20000, 784})).shuffle(20000, {.seed = 1});
  const PipelineReport report = report_of_pass(rows.batch(5000).prefetch(1));
  EXPECT_EQ(bottleneck(report), "from_tensor_slices.shuffle.batch");
}

/// Counters by hand: no clock decides.
class Blame : public ::testing::Test {
 protected:
  internal::data::Stage& stage(const Dataset& dataset, internal::data::Stage* reader) {
    return book_.stage_of(*dataset.node(), reader);
  }
  std::string blamed(int64_t elapsed_ms, int64_t waited_ms) {
    const std::chrono::steady_clock::time_point start{std::chrono::seconds(1)};
    book_.note_next(start, start + milliseconds(waited_ms));
    book_.note_next(start + milliseconds(elapsed_ms), start + milliseconds(elapsed_ms));
    return bottleneck(book_.report());
  }
  static void set(internal::data::Stage& stage, int64_t own_ms, int64_t waited_ms, int threads) {
    stage.own_ns = nanoseconds(milliseconds(own_ms)).count();
    stage.waited_ns = nanoseconds(milliseconds(waited_ms)).count();
    stage.threads = threads;
  }

  internal::data::StageBook book_;
  const Dataset range_ = Dataset::range(4);
  const Dataset map_ = range_.map(same);
  const Dataset prefetch_ = map_.prefetch(1);
};

TEST_F(Blame, NobodyWhenTheReaderHardlyWaits) {
  internal::data::Stage& map = stage(map_, nullptr);
  set(map, 1, 1, 0);
  EXPECT_EQ(blamed(100, 4), "none");
}

TEST_F(Blame, DividesTheWorkOfAStepByItsThreads) {
  internal::data::Stage& prefetch = stage(prefetch_, nullptr);
  internal::data::Stage& map = stage(map_, &prefetch);
  internal::data::Stage& range = stage(range_, &map);
  set(prefetch, 0, 90, 1);
  set(map, 120, 80, 4);
  set(range, 50, 50, 0);
  EXPECT_EQ(blamed(100, 90), "range");  // 30 ms of each map thread, 50 of the range.
  set(map, 280, 80, 4);
  EXPECT_EQ(blamed(100, 90), "range.map");
}

TEST(PipelineReport, TableIsAligned) {
  PipelineReport report;
  report.nodes = {{.name = "map",
                   .path = "range.map",
                   .elements = 1000,
                   .own = milliseconds(20),
                   .waited = milliseconds(12),
                   .threads = 2,
                   .buffer_mean = 1.25,
                   .buffer_max = 4,
                   .buffer_capacity = 4},
                  {.name = "range", .path = "range", .depth = 1, .elements = 1000}};
  report.elapsed = milliseconds(100);
  report.waited = milliseconds(12);
  report.bottleneck = 0;
  EXPECT_EQ(report.to_string(),
            "step       elements  own ms  waited ms  threads  ready when asked\n"
            "range.map      1000    20.0       12.0        2  1.2, most 4 of 4  <- bottleneck\n"
            "range          1000     0.0        0.0\n"
            "reader: 100.0 ms, 12.0 ms in next()\n");
}

}  // namespace
}  // namespace cohort
