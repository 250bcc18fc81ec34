// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/flight_recorder.h"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cohort/base/strings.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/collectives/forwarding_transport.h"
#include "cohort/collectives/stragglers.h"
#include "cohort/collectives/test_job.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::collectives {
namespace {

using std::chrono::milliseconds;
using testing::expect_words;
using testing::run_with_deadline;

constexpr std::chrono::seconds kLimit{60};

struct FlightRecords : testing::FolderTest {
  std::string record_of(int rank) const {
    std::ostringstream text;
    text << std::ifstream(path(str_cat("flight_rank_", rank, ".txt"))).rdbuf();
    return text.str();
  }
};

// G5: one rank does not come to the third meeting.
TEST_F(FlightRecords, G5_SayWhatEachRankWasIn) {
  ::setenv("COHORT_FLIGHT_RECORDER", path("").c_str(), 1);
  TestJob job(Carrier::kTcp, 3, {.timeout = milliseconds(1500)});
  run_with_deadline(kLimit, [&] {
    const auto errors = job.try_run([&](Communicator& mine) {
      mine.take_turn("[test.step] ", [&] {
        std::vector<float> numbers(10, 1.0F);
        mine.all_reduce(bytes_of(numbers), kFloat32, ReduceOp::kSum, {.tag = 7});
        mine.barrier();
      });
      if (mine.rank() == 1) return;
      mine.take_turn("[test.second] ", [&] { mine.barrier({.tag = 9}); });
    });
    EXPECT_TRUE(errors[0]);
    EXPECT_TRUE(errors[2]);
  });
  ::unsetenv("COHORT_FLIGHT_RECORDER");
  for (const int rank : {0, 2}) {
    expect_words(record_of(rank),
                 {"rank 1", str_cat("rank ", rank, " of 3 was in test.second"),
                  "call 3, step 0, barrier(0 bytes, tag 9): failed",
                  "call 2, step 0, barrier(0 bytes): done",
                  "call 1, step 0, all_reduce(sum of float32, 40 bytes, tag 7): done"});
  }
}

TEST_F(FlightRecords, WhatAProgramThrowsIsNoRiddle) {
  ::setenv("COHORT_FLIGHT_RECORDER", path("").c_str(), 1);
  TestJob job(Carrier::kTcp, 2);
  run_with_deadline(kLimit, [&] {
    job.try_run([&](Communicator& mine) {
      mine.take_turn("[test.step] ", [&] {
        if (mine.rank() == 1) throw InvalidArgument("[program] bad data");
        mine.barrier();
      });
    });
  });
  ::unsetenv("COHORT_FLIGHT_RECORDER");
  EXPECT_EQ(record_of(0), "");
}

// Over TCP nobody else moves what is under way while a backward pass goes on.
TEST(RecordedTransports, HandOnWhatIsUnderWay) {
  struct Counted final : ForwardingTransport {
    explicit Counted(int* calls) : ForwardingTransport(nullptr), count(calls) {}
    void go_on() override { ++*count; }
    int* const count;
  };
  int calls = 0;
  const auto transport =
      recorded(std::make_unique<Counted>(&calls), std::make_shared<FlightRecorder>());
  transport->go_on();
  EXPECT_EQ(calls, 1);
}

// What a rank does until it waits is its own time, not that of the others.
TEST(RecordedTransports, CountTheLookAsWaitingAndNotTheStart) {
  const auto recorder = std::make_shared<FlightRecorder>();
  struct Seen final : ForwardingTransport {
    Seen(std::shared_ptr<FlightRecorder> of, std::vector<std::string>* into)
        : ForwardingTransport(nullptr), recorder(std::move(of)), seen(into) {}
    void start(const Exchange&) override { seen->push_back(recorder->waiting()); }
    void look(Exchange&, Deadline) override { seen->push_back(recorder->waiting()); }
    const std::shared_ptr<FlightRecorder> recorder;
    std::vector<std::string>* const seen;
  };
  std::vector<std::string> seen;
  const auto transport = recorded(std::make_unique<Seen>(recorder, &seen), recorder);
  Exchange exchange{.signature = {.collective = Collective::kBarrier, .tag = 3}};
  transport->start_and_look(exchange, milliseconds(100));
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0], "");
  expect_words(seen[1], {"barrier(0 bytes, tag 3) for "});
  expect_words(recorder->text(), {"call 1, step 0, barrier(0 bytes, tag 3): done"});
}

TEST(RecordedTransports, KeepACallThatCouldNotBegin) {
  const auto recorder = std::make_shared<FlightRecorder>();
  struct Failed final : ForwardingTransport {
    Failed() : ForwardingTransport(nullptr) {}
    void start(const Exchange&) override { throw Cancelled("[test] gone"); }
  };
  const auto transport = recorded(std::make_unique<Failed>(), recorder);
  Exchange exchange{.signature = {.collective = Collective::kBarrier, .tag = 3}};
  EXPECT_THROW(transport->start_and_look(exchange, milliseconds(100)), Cancelled);
  expect_words(recorder->text(), {"call 1, step 0, barrier(0 bytes, tag 3): started"});
}

// A transport that has its own way to do both at once is not undone by one around it.
TEST(ForwardingTransports, HandOnAStartThatLooksAtOnce) {
  struct AtOnce final : ForwardingTransport {
    explicit AtOnce(int* times) : ForwardingTransport(nullptr), calls(times) {}
    Deadline start_and_look(Exchange&, milliseconds) override {
      ++*calls;
      return {};
    }
    bool has_come(const Exchange&) override { return ++*calls > 0; }
    int* const calls;
  };
  int calls = 0;
  ForwardingTransport around(std::make_unique<AtOnce>(&calls));
  Exchange exchange;
  around.start_and_look(exchange, milliseconds(100));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(around.has_come(exchange));
}

TEST(FlightRecorders, KeepTheNewest) {
  FlightRecorder recorder;
  for (uint64_t n = 0; n < 2 * FlightRecorder::kKept; ++n) {
    recorder.started({.sequence = n}, {.collective = Collective::kBarrier, .tag = n});
    recorder.waits({.sequence = n});
    if (n + 1 < 2 * FlightRecorder::kKept) recorder.ended({.sequence = n}, true);
  }
  const std::string text = recorder.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), int64_t{FlightRecorder::kKept});
  EXPECT_TRUE(text.starts_with("  call 512, step 0, barrier(0 bytes, tag 511): waits")) << text;
  expect_words(recorder.waiting(), {"barrier(0 bytes, tag 511) for "});
  recorder.ended({.sequence = 2 * FlightRecorder::kKept - 1}, true);
  EXPECT_EQ(recorder.waiting(), "");
}

// A6
TEST(StragglerReports, A6_NameWhoIsSlowAndHowMuch) {
  const std::vector<std::string> names = {"worker 0", "worker 1 (localhost:2222)", "worker 2"};
  std::vector<Pace> paces(3);
  const auto window = [&](uint64_t n, int own1) {
    for (Pace& pace : paces)
      pace = {.window = n, .own = milliseconds(10), .waited = milliseconds(40)};
    paces[1].own = milliseconds(own1);
    paces[1].waited = milliseconds(0);
  };
  Stragglers stragglers(2);
  window(1, 50);
  EXPECT_TRUE(stragglers.look_at(paces, names).empty()) << "once may be chance";
  EXPECT_TRUE(stragglers.look_at(paces, names).empty()) << "nothing new";
  window(2, 50);
  const auto lines = stragglers.look_at(paces, names);
  ASSERT_EQ(lines.size(), 1U);
  expect_words(lines[0], {"worker 1 (localhost:2222) is slow", "50 ms are its own", "5 times",
                          "10 ms (median)", "they wait 40 ms", "steps 9 to 16"});
  window(3, 50);
  EXPECT_TRUE(stragglers.look_at(paces, names).empty()) << "said once";
  window(4, 15);
  EXPECT_TRUE(stragglers.look_at(paces, names).empty());
  for (const uint64_t n : {5, 6}) window(n, 50), stragglers.look_at(paces, names);
  Stragglers nobody(0);
  for (const uint64_t n : {5, 6}) {
    window(n, 50);
    EXPECT_TRUE(nobody.look_at(paces, names).empty());
  }
}

TEST(Paces, TravelAsText) {
  const Pace pace =
      Pace::of(Pace{.window = 3, .own = milliseconds(7), .waited = milliseconds(2)}.text());
  EXPECT_EQ(pace.window, 3U);
  EXPECT_EQ(pace.own, milliseconds(7));
  EXPECT_EQ(pace.waited, milliseconds(2));
  EXPECT_EQ(Pace::of("").window, 0U);
  EXPECT_EQ(Pace::of("what").window, 0U);
}

}  // namespace
}  // namespace cohort::internal::collectives
