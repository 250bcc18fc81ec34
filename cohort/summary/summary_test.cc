// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/summary/internal/messages.h"
#include "cohort/summary/summary_writer.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/file_size_limit.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

std::vector<fs::path> event_files(const std::string& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  return out;
}

// The events of a run, as bytes.
std::vector<std::string> events_of(const std::string& folder) {
  std::vector<std::string> out;
  for (const fs::path& path : event_files(folder)) {
    for (const data::Element& record : data::Dataset::tf_records({path.string()})) {
      out.push_back(record.string());
    }
  }
  return out;
}

// What TensorFlow 2.21 writes, and TensorBoard's own loader reads.
TEST(SummaryMessages, AreTensorFlowsBytes) {
  EXPECT_EQ(hex(internal::summary::version_event(1.5)),
            "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(hex(internal::summary::value_event(2.5, 3, "epoch_loss", {.name = "scalars"},
                                               internal::summary::float_tensor(0.25F))),
            "0900000000000004401003"
            "2a270a254a0b0a090a077363616c617273"
            "0a0a65706f63685f6c6f7373"
            "420a08011200"
            "2a040000803e");
}

std::vector<double> rows_of(const Tensor& values, int buckets) {
  const std::string bytes = internal::summary::histogram_tensor(values, buckets);
  const std::size_t size = static_cast<std::size_t>(buckets) * 3 * sizeof(double);
  std::vector<double> rows(static_cast<std::size_t>(buckets) * 3);
  std::memcpy(rows.data(), bytes.data() + bytes.size() - size, size);
  return rows;
}

// tf.summary.histogram(...)'s tensors.
TEST(SummaryMessages, HistogramsAreTensorFlows) {
  EXPECT_EQ(rows_of(tensor({0.0, 1.0, 2.0, 2.0, 4.0}), 2), (std::vector<double>{0, 2, 2, 2, 4, 3}));
  EXPECT_EQ(rows_of(tensor({3, 3, 3}), 2), (std::vector<double>{3, 3, 0, 3, 3, 3}));
  EXPECT_EQ(rows_of(zeros({0}), 2), (std::vector<double>{0, 0, 0, 0, 0, 0}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(rows_of(tensor({0.0, nan, 1.0, infinity}), 1), (std::vector<double>{0, 1, 2}));
}

struct SummaryWriterTest : testing::FilesTest {};

TEST_F(SummaryWriterTest, WritesEveryKindIntoOneFile) {
  const std::string run = path("runs/first");
  {
    SummaryWriter writer(run);
    EXPECT_EQ(writer.log_dir(), run);
    EXPECT_TRUE(event_files(run).empty());  // until something is logged
    writer.scalar("loss", 0.5, 1);
    writer.histogram("weights", tensor({1.0, 2.0}), 1);
    writer.image("digits", zeros({2, 4, 3, 1}), 1);
    writer.image("one", zeros({4, 3, 3}, kUint8), 1);
    writer.text("notes", "**hello**", 1);
    writer.hparams({{"rate", 0.1}, {"rule", "adam"}, {"clip", true}});
  }
  ASSERT_EQ(event_files(run).size(), 1U);
  EXPECT_NE(event_files(run)[0].filename().string().find("events.out.tfevents."),
            std::string::npos);
  const std::vector<std::string> events = events_of(run);
  ASSERT_EQ(events.size(), 7U);
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  const char* const tags[] = {"loss", "weights", "digits", "one", "notes", "rate"};
  const char* const plugins[] = {"scalars", "histograms", "images", "images", "text", "hparams"};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NE(events[i + 1].find(tags[i]), std::string::npos) << i;
    EXPECT_NE(events[i + 1].find(plugins[i]), std::string::npos) << i;
  }
  EXPECT_NE(events[3].find("\x89PNG"), std::string::npos);
}

TEST_F(SummaryWriterTest, ReadersSeeWhatWasFlushed) {
  SummaryWriter writer(path("run"), {.flush_every = std::chrono::hours(1)});
  writer.scalar("a", 1, 0);
  writer.flush();
  EXPECT_EQ(events_of(path("run")).size(), 2U);
  SummaryWriter at_once(path("at_once"), {.flush_every = std::chrono::milliseconds(0)});
  at_once.scalar("a", 1, 0);
  EXPECT_EQ(events_of(path("at_once")).size(), 2U);
}

// What comes later stands in another file, which TensorBoard reads behind the first.
TEST_F(SummaryWriterTest, GoesOnWhenADiskHasRoomAgain) {
  SummaryWriter writer(path("run"), {.flush_every = std::chrono::hours(1)});
  writer.scalar("before", 1, 0);
  writer.flush();
  const auto first = event_files(path("run"));
  {
    const testing::FileSizeLimit full(std::filesystem::file_size(first[0]));
    writer.scalar("lost", 1, 1);
    EXPECT_THROW(writer.flush(), Error);
  }
  writer.scalar("after", 1, 2);
  writer.flush();
  EXPECT_EQ(event_files(path("run")).size(), 2U);
  const std::vector<std::string> events = events_of(path("run"));
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event.find("after") != event.npos; }),
            1);
}

// Each has a file of its own, so that none truncates another's.
TEST_F(SummaryWriterTest, TwoWritersShareARun) {
  {
    SummaryWriter first(path("run")), second(path("run"));
    first.scalar("a", 1, 0);
    second.scalar("b", 1, 0);
  }
  EXPECT_EQ(event_files(path("run")).size(), 2U);
  EXPECT_EQ(events_of(path("run")).size(), 4U);
}

TEST_F(SummaryWriterTest, Replica0WritesForAll) {
  {
    SummaryWriter writer(path("run"));
    for (int replica = 0; replica < 3; ++replica) {
      const internal::runtime::ReplicaScope here(nullptr, replica, 3);
      writer.scalar("loss", replica, 7);
    }
  }
  EXPECT_EQ(events_of(path("run")).size(), 2U);
}

TEST_F(SummaryWriterTest, ThreadsMayShareOne) {
  {
    SummaryWriter writer(path("run"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&writer] {
        for (int step = 0; step < 100; ++step) writer.scalar("loss", step, step);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(events_of(path("run")).size(), 401U);
}

TEST_F(SummaryWriterTest, RefusesWhatItCannotWrite) {
  SummaryWriter writer(path("run"));
  testing::expect_error<InvalidArgument>({"image", "float32 [4]"},
                                         [&] { writer.image("x", zeros({4}), 0); });
  testing::expect_error<InvalidArgument>({"image", "int64"}, [&] {
    writer.image("x", zeros({4, 4, 1}, kInt64), 0);
  });
  testing::expect_error<InvalidArgument>({"histogram", "bucket"},
                                         [&] { writer.histogram("x", zeros({4}), 0, 0); });
  writer.close();
  testing::expect_error<FailedPrecondition>({"after close()"}, [&] { writer.scalar("x", 1, 0); });
  testing::expect_error<Error>({"/proc/none"}, [] { SummaryWriter("/proc/none/run"); });
}

}  // namespace
}  // namespace cohort
