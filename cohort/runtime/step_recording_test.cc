// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/step_recording.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cohort/testing/expect_error.h"

namespace cohort::internal::runtime {
namespace {

void put(int number, std::byte* out) { std::memcpy(out, &number, sizeof number); }

struct Block {
  alignas(16) std::array<std::byte, 48> bytes = {};
  int number(const std::byte* at) const {
    int number = 0;
    std::memcpy(&number, at, sizeof number);
    return number;
  }
};

TEST(StepRecording, AsksValuesInOrderAtEachStartAndCallsEffectsBehindThem) {
  Block block;
  RecordingStore store;
  StepRecording recording(block.bytes.data(), block.bytes.size(), store);
  EXPECT_EQ(StepRecording::current(), nullptr);
  int step = 0, asked = 0;
  std::array<std::byte*, 2> places = {};
  const auto code = [&] {
    const RecordingScope scope(recording);
    recording.begin_pass();
    ASSERT_EQ(StepRecording::current(), &recording);
    EXPECT_EQ(recording.value(0, [&](std::byte*) { ++asked; }), nullptr);
    places[0] = recording.value(4, [&](std::byte* out) { put(10 * step + asked, out); });
    places[1] = recording.value(20, [&](std::byte* out) { put(-step, out); });
    recording.after([&] { ++step; });
  };
  code();
  EXPECT_EQ(StepRecording::current(), nullptr);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(places[0], block.bytes.data());
  EXPECT_EQ(places[1], block.bytes.data() + 16);
  EXPECT_EQ(recording.bytes(), 48U);
  for (int start = 0; start < 3; ++start) {
    recording.fill(block.bytes);
    EXPECT_EQ(block.number(places[0]), 10 * start + start + 1);
    EXPECT_EQ(block.number(places[1]), -start);
    EXPECT_EQ(step, start);
    recording.call_effects();
  }
  EXPECT_EQ(step, 3);
  // Again: the same places, and nothing is registered twice.
  const std::array<std::byte*, 2> before = places;
  code();
  EXPECT_EQ(places, before);
  recording.fill(block.bytes);
  recording.call_effects();
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(step, 4);
}

TEST(StepRecording, RefusesWhatItHasNoRoomFor) {
  Block block;
  RecordingStore store;
  StepRecording recording(block.bytes.data(), block.bytes.size(), store);
  const RecordingScope scope(recording);
  recording.begin_pass();
  for (int i = 0; i < 3; ++i) recording.value(8, [](std::byte*) {});
  testing::expect_error<RecordingRefused>({"48 bytes"},
                                          [&] { recording.value(1, [](std::byte*) {}); });
}

TEST(StepRecording, RefusesOnlyWhereOneIsUnderWay) {
  refuse_recording("nothing");
  Block block;
  RecordingStore store;
  StepRecording recording(block.bytes.data(), block.bytes.size(), store);
  const RecordingScope scope(recording);
  testing::expect_error<RecordingRefused>({"it reads"}, [] { refuse_recording("it reads"); });
}

TEST(StepRecording, ItsStoreKeepsThingsByClass) {
  RecordingStore store;
  const auto number = std::make_shared<int>(3);
  store.keep(number);
  store.keep(std::make_shared<double>(0.5));
  EXPECT_EQ(number.use_count(), 2);
  ASSERT_EQ(store.kept<int>().size(), 1U);
  EXPECT_EQ(store.kept<int>()[0], number);
  EXPECT_EQ(*store.kept<double>()[0], 0.5);
  EXPECT_TRUE(store.kept<float>().empty());
}

}  // namespace
}  // namespace cohort::internal::runtime
