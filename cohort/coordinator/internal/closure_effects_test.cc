// SPDX-License-Identifier: Apache-2.0
//
// What becomes of functions that count once where a coordinator dies, its disk is full or servers
// are away, over connections to servers that are threads of this process.
#include "cohort/coordinator/internal/closure_effects.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using testing::expect_error;

EncodedValues encoded_number(double x) {
  ValueWriter out;
  write_value(out, x);
  return std::move(out).finish();
}

JournalKey key_of(const std::string& id) { return journal_key(id, "add", encoded_number(1)); }
double number_in(const std::optional<EncodedValues>& values) {
  if (!values) return -1;
  ValueReader in(*values);
  return read_value<double>(in);
}

// Which write of the journal fails; 0: none (more).
std::atomic<int> g_failing_write{0};
int fail_write(const char* call, const std::string& /*path*/) {
  return std::string(call) == "write" && --g_failing_write == 0 ? ENOSPC : 0;
}

// Who is cancelled between what was decided and what is written.
std::atomic<ClosureEffects*> g_cancelling{nullptr};
std::atomic<uint64_t> g_cancelled{0};
void cancel_there(const char* place) {
  if (std::string(place) != "coordinator.settles") return;
  g_cancelling.load()->cancel(g_cancelled, std::make_exception_ptr(Cancelled("all is over")));
}

void be_away(const char* place) {
  if (std::string(place) == "ps.settles") throw Unavailable("the line is cut", "ps 0");
}

class ClosureEffectsTest : public ::testing::Test {
 protected:
  ClosureEffectsTest() { std::filesystem::remove_all(folder_); }
  ~ClosureEffectsTest() override {
    base::g_failpoint_hook = nullptr;
    base::g_fault_hook = nullptr;
    std::filesystem::remove_all(folder_);
  }
  std::shared_ptr<Journal> open_journal() const {
    return std::make_shared<Journal>(Journal::Options{.folder = folder_});
  }
  /// Adds one, when it counts. What servers have acknowledged.
  static std::vector<uint64_t> prepare(ParameterServers& servers, const ParameterHandle& h,
                                       uint64_t closure, uint64_t attempt) {
    const Transaction once(closure, attempt);
    servers.write(h, {}, variables::Write::kAdd, full({1}, 1.0));
    return once.counts();
  }
  ParameterHandle make_zero() const {
    return servers_->make_or_bind({.name = "w", .shape = {1}}, [](int64_t rows, int64_t /*first*/) {
      return full({rows}, 0.0);
    });
  }
  /// A function whose worker has answered that it has added one and gives 7.
  RunAnswer run(ClosureEffects& effects, const std::string& id) const {
    const uint64_t closure = effects.open(key_of(id));
    const uint64_t attempt = effects.begin(0, closure);
    RunAnswer out;
    out.calls.push_back({.id = closure,
                         .state = CallAnswer::State::kValue,
                         .prepared = prepare(*servers_, h_, closure, attempt),
                         .value = encoded_number(7)});
    return out;
  }
  static void settle(ClosureEffects& effects, RunAnswer& answer) {
    effects.settle(0, answer, [] { return false; });
  }
  /// The same, which has counted, and ended, but the journal could not take that.
  RunAnswer end_unwritten(ClosureEffects& effects, const std::string& id) const {
    RunAnswer answer = run(effects, id);
    fail_write_of_journal(2);  // behind what says that it is decided
    settle(effects, answer);
    effects.end(answer.calls[0].id);
    return answer;
  }
  /// Functions that throw: the second tells servers that the first has ended.
  void let_others_fail(ClosureEffects& effects) const {
    for (const char* id : {"b", "c"}) {
      RunAnswer answer = run(effects, id);
      answer.calls[0].state = CallAnswer::State::kError;
      settle(effects, answer);
      effects.end(answer.calls[0].id);
    }
  }
  static void fail_write_of_journal(int which) {
    g_failing_write = which;
    base::g_fault_hook = &fail_write;
  }
  /// The next process finds that it has counted, and once.
  void expect_counted_by_the_next(const std::string& id) const {
    const auto journal = open_journal();
    journal->begin(12, 1, true);
    const auto servers = test_.connect();
    settle_decided(*journal, *servers);
    EXPECT_EQ(number_in(journal->find(key_of(id))), 7);
    EXPECT_EQ(value(), 1);
  }
  float value() const { return servers_->pull(h_).item<float>(); }

  const std::string folder_ = str_cat(::testing::TempDir(), "cohort_effects_", ::getpid());
  const TestServers test_{2};
  const std::shared_ptr<ParameterServers> servers_ = test_.connect();
  const ParameterHandle h_ = make_zero();
};

// Each within the range that the one before it would have had by what was decided.
TEST_F(ClosureEffectsTest, AProcessThatDecidesNothingHasItsOwnNumbersAllTheSame) {
  {
    const auto journal = open_journal();
    journal->begin(11, 1, false);
    const uint64_t id = servers_->next_closure();
    journal->decide({}, {.closure = id, .attempt = 1}, {});
    journal->end(id, nullptr);
  }
  std::vector<uint64_t> ids;
  for (const uint64_t session : {12, 13, 14}) {
    const auto journal = open_journal();
    journal->begin(session, 1, true);
    const auto servers = test_.connect();
    settle_decided(*journal, *servers);
    for (const uint64_t id : ids) {
      expect_error<FailedPrecondition>({"taken for lost"}, [&] { prepare(*servers, h_, id, 2); });
    }
    const uint64_t id = servers->next_closure();
    EXPECT_GT(id, ids.empty() ? 0 : ids.back() + 1000);
    prepare(*servers, h_, id, 1);  // which is left there
    ids.push_back(id);
  }
}

TEST_F(ClosureEffectsTest, AnEndThatCannotBeWrittenIsLeftToTheNextProcess) {
  {
    const auto journal = open_journal();
    journal->begin(11, 1, false);
    ClosureEffects effects(servers_, journal);
    const RunAnswer answer = end_unwritten(effects, "a");
    EXPECT_EQ(value(), 1);
    expect_error(ErrorCode::kUnknown, {"schedule_exactly_once"},
                 [&] { std::rethrow_exception(answer.calls[0].error); });
    // Else it would count twice.
    expect_error(ErrorCode::kUnknown, {"\"a\"", "start the chief again"},
                 [&] { journal->find(key_of("a")); });
  }
  expect_counted_by_the_next("a");
}

// As where the disk was full, and has room again.
TEST_F(ClosureEffectsTest, AnEndThatCouldNotBeWrittenIsWrittenLater) {
  const auto journal = open_journal();
  journal->begin(11, 1, false);
  ClosureEffects effects(servers_, journal);
  end_unwritten(effects, "a");
  expect_error<FailedPrecondition>({"still to be told"}, [&] { journal->forget_finished(); });
  base::g_fault_hook = nullptr;
  effects.go_on();
  EXPECT_EQ(number_in(journal->find(key_of("a"))), 7);
  RunAnswer next = run(effects, "b");
  settle(effects, next);
  effects.end(next.calls[0].id);
  EXPECT_TRUE(journal->open().empty());
  EXPECT_EQ(value(), 2);
  journal->forget_finished();
  EXPECT_FALSE(journal->find(key_of("a")));
}

// The program's thread does not wait for the full disk with each function that it schedules.
TEST_F(ClosureEffectsTest, AnEndIsTriedAgainOnceASecond) {
  const auto journal = open_journal();
  journal->begin(11, 1, false);
  ClosureEffects effects(servers_, journal);
  end_unwritten(effects, "a");
  fail_write_of_journal(1);
  const auto begun = std::chrono::steady_clock::now();
  effects.go_on();
  EXPECT_EQ(g_failing_write, 0);
  for (int i = 0; i < 10; ++i) effects.go_on();
  const bool at_once = std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(900);
  EXPECT_TRUE(!at_once || g_failing_write == 0) << "tried again at once";
  base::g_fault_hook = nullptr;
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  effects.go_on();
  EXPECT_EQ(number_in(journal->find(key_of("a"))), 7);
}

TEST_F(ClosureEffectsTest, OneThatIsCancelledBehindItsDecisionKeepsItsId) {
  const auto journal = open_journal();
  journal->begin(11, 1, false);
  ClosureEffects effects(servers_, journal);
  RunAnswer answer = run(effects, "a");
  g_cancelling = &effects;
  g_cancelled = answer.calls[0].id;
  base::g_failpoint_hook = &cancel_there;
  settle(effects, answer);
  EXPECT_EQ(value(), 1);
  EXPECT_EQ(number_in(journal->find(key_of("a"))), 7);
}

// A server that cannot be reached does its part when it is there again: what the others have done
// stays no half.
TEST_F(ClosureEffectsTest, WhatServersCouldNotBeToldIsLeftToTheNextProcess) {
  {
    const auto journal = open_journal();
    journal->begin(11, 1, false);
    ClosureEffects effects(servers_, journal);
    RunAnswer answer = run(effects, "a");
    base::g_failpoint_hook = &be_away;
    settle(effects, answer);
    effects.end(answer.calls[0].id);
    EXPECT_EQ(value(), 0);
    expect_error(ErrorCode::kUnknown,
                 {"schedule_exactly_once", "start the chief again", "the line is cut"},
                 [&] { std::rethrow_exception(answer.calls[0].error); });
    expect_error(ErrorCode::kUnknown, {"\"a\""}, [&] { journal->find(key_of("a")); });
    base::g_failpoint_hook = nullptr;
    let_others_fail(effects);  // which do not let servers forget the first
    ClosureEffects second(servers_, journal);
    let_others_fail(second);  // the same of another coordinator of this process
  }
  expect_counted_by_the_next("a");
}

TEST_F(ClosureEffectsTest, WhatCannotBeDecidedIsDropped) {
  const auto journal = open_journal();
  journal->begin(11, 1, false);
  ClosureEffects effects(servers_, journal);
  RunAnswer answer = run(effects, "a");
  const uint64_t closure = answer.calls[0].id;
  fail_write_of_journal(1);
  settle(effects, answer);
  effects.end(closure);
  EXPECT_EQ(answer.calls[0].state, CallAnswer::State::kError);
  EXPECT_FALSE(journal->find(key_of("a")));
  answer = run(effects, "a");
  settle(effects, answer);
  EXPECT_EQ(answer.calls[0].state, CallAnswer::State::kValue);
  EXPECT_EQ(value(), 1);
  // Else it, and all behind it, would wait on servers until they are full.
  expect_error<FailedPrecondition>({"taken for lost"}, [&] { prepare(*servers_, h_, closure, 2); });
}

}  // namespace
}  // namespace cohort::internal::coordinator
