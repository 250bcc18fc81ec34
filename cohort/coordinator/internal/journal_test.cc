// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/internal/journal_frames.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using testing::expect_error;

EncodedValues encoded(double x) {
  ValueWriter out;
  write_value(out, x);
  write_value(out, full({2000}, x));  // large enough to lie beside the others
  return std::move(out).finish();
}
double decoded(const EncodedValues& values) {
  ValueReader in(values);
  const auto x = read_value<double>(in);
  EXPECT_EQ(read_value<Tensor>(in).sum().item<double>(), 2000 * x);
  in.end();
  return x;
}
JournalKey key(const std::string& id, double x = 1) { return journal_key(id, "train", encoded(x)); }
ClosureSettlement settlement(uint64_t closure) {
  return {.closure = closure, .attempt = 2, .counts = {3, 0, 1}};
}
std::string g_failing_call;
int fail_call(const char* call, const std::string& /*path*/) {
  return g_failing_call == call ? ENOSPC : 0;
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() { std::filesystem::remove_all(folder_); }
  ~JournalTest() override {
    base::g_fault_hook = nullptr;
    std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<Journal> open() const {
    return std::make_unique<Journal>(Journal::Options{.folder = folder_});
  }
  std::string file() const { return folder_ + "/journal"; }
  void write_some() const {
    const auto journal = open();
    journal->begin(11, 1, false);
    journal->finish(key("plain"), encoded(1));
    journal->decide(key("once"), settlement(5), encoded(2));
    journal->end(5, nullptr);
    journal->decide(key("open"), settlement(6), encoded(3));
    journal->decide(key("failed"), settlement(7), encoded(4));
    journal->end(7, std::make_exception_ptr(Internal("the disk is full")));
    journal->decide(JournalKey(), settlement(8), encoded(5));
  }

  const std::string folder_ = str_cat(::testing::TempDir(), "cohort_journal_", ::getpid(), "/run");
};

TEST_F(JournalTest, TheNextOneFindsWhatWasWritten) {
  write_some();
  const auto journal = open();
  EXPECT_TRUE(journal->can_resume());
  EXPECT_EQ(journal->origin(), 11);
  EXPECT_EQ(decoded(*journal->find(key("plain"))), 1);
  EXPECT_EQ(decoded(*journal->find(key("once"))), 2);
  expect_error(ErrorCode::kUnknown, {"\"open\"", "start the chief again"},
               [&] { journal->find(key("open")); });
  expect_error<FailedPrecondition>({"\"open\"", "eval with"},
                                   [&] { journal->find(journal_key("open", "eval", encoded(1))); });
  expect_error(ErrorCode::kUnknown, {"the disk is full"}, [&] { journal->find(key("failed")); });
  EXPECT_GT(journal->last_closure(), 8);
  const auto left = journal->open();
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left[0].closure, 6);
  EXPECT_EQ(left[0].attempt, 2);
  EXPECT_EQ(left[0].counts, (std::vector<uint64_t>{3, 0, 1}));
  EXPECT_EQ(left[1].closure, 8);
  journal->end(6, nullptr);
  EXPECT_EQ(decoded(*journal->find(key("open"))), 3);
}

TEST_F(JournalTest, AnotherCallUnderTheIdIsNamed) {
  write_some();
  const auto journal = open();
  expect_error<FailedPrecondition>({"\"once\"", "train with", "eval with"},
                                   [&] { journal->find(journal_key("once", "eval", encoded(1))); });
  expect_error<FailedPrecondition>({"\"once\"", "checksum"},
                                   [&] { journal->find(key("once", 7)); });
}

// Wherever the last record breaks off, what was told before is there, and it goes on behind it.
TEST_F(JournalTest, ATornTailIsCutOff) {
  write_some();
  const auto whole = std::filesystem::file_size(file());
  {
    const auto journal = open();
    journal->finish(key("last"), encoded(9));
  }
  const auto all = std::filesystem::file_size(file());
  std::vector<uintmax_t> ends = {all - 1,    all - 4,    all - 5,  whole + 100,
                                 whole + 12, whole + 11, whole + 1};
  for (const uintmax_t end : ends) {
    std::filesystem::resize_file(file(), end);
    {
      const auto journal = open();
      EXPECT_EQ(std::filesystem::file_size(file()), whole) << end;
      EXPECT_FALSE(journal->find(key("last")));
      EXPECT_EQ(decoded(*journal->find(key("once"))), 2);
      journal->finish(key("last"), encoded(9));
    }
    EXPECT_EQ(decoded(*open()->find(key("last"))), 9);
  }
}

TEST_F(JournalTest, DamageBeforeWholeRecordsIsAnError) {
  write_some();
  std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(100);
  out.put('x');
  out.close();
  expect_error<DataLoss>({"[journal]", "damage at byte", "last checkpoint"}, [&] { open(); });
}

TEST_F(JournalTest, OneProcessHasIt) {
  const auto first = open();
  expect_error<FailedPrecondition>({"[journal]", "no other coordinator", folder_}, [&] { open(); });
}

// As one that a program starts and that outlives it.
TEST_F(JournalTest, AChildDoesNotKeepIt) {
  auto first = open();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    if (::write(ends[1], &byte, 1) == 1) ::pause();
    ::_exit(0);
  }
  ASSERT_EQ(::read(ends[0], &byte, 1), 1) << "it has begun";
  ::close(ends[0]);
  ::close(ends[1]);
  first.reset();
  EXPECT_NO_THROW(open());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// On a file system that does not hold locks.
TEST_F(JournalTest, OneThatWasFollowedWritesNothingMore) {
  for (const bool is_resumed : {true, false}) {
    write_some();
    const auto first = open();
    std::filesystem::remove(folder_ + "/lock");
    const auto second = open();
    second->begin(12, 2, is_resumed);
    second->finish(key("second"), encoded(7));
    const auto refused = [](const auto& work) {
      expect_error<FailedPrecondition>({"[journal]", "another chief has begun", "End this program"},
                                       work);
    };
    refused([&] { first->finish(key("late"), encoded(1)); });
    refused([&] { first->decide(key("late"), settlement(9), encoded(1)); });
    refused([&] { first->begin(13, 3, true); });
    refused([&] { first->find(key("plain")); });
    EXPECT_EQ(decoded(*second->find(key("second"))), 7);
    EXPECT_EQ(second->generation(), 2);
    EXPECT_EQ(second->origin(), is_resumed ? 11 : 12);
  }
}

std::string g_journal_folder;
std::unique_ptr<Journal> g_following;
void follow_there(const char* place) {
  if (std::string(place) != "journal.torn" || g_following) return;
  std::filesystem::remove(g_journal_folder + "/lock");
  g_following = std::make_unique<Journal>(Journal::Options{.folder = g_journal_folder});
  g_following->begin(12, 2, true);
}

// It stands still between two parts of a record.
TEST_F(JournalTest, OneThatIsFollowedWhileItWritesWritesInNoOtherFile) {
  write_some();
  const auto first = open();
  g_journal_folder = folder_;
  const auto hook = base::g_failpoint_hook.exchange(&follow_there);
  expect_error<FailedPrecondition>({"another chief has begun"},
                                   [&] { first->finish(key("late"), encoded(1)); });
  base::g_failpoint_hook = hook;
  const auto second = std::move(g_following);
  ASSERT_NE(second, nullptr);
  EXPECT_FALSE(second->find(key("late")));
  second->finish(key("second"), encoded(7));
  EXPECT_EQ(decoded(*second->find(key("second"))), 7);
  EXPECT_EQ(decoded(*second->find(key("once"))), 2);
  second->end(6, nullptr);
  EXPECT_EQ(decoded(*second->find(key("open"))), 3);
}

Journal* g_followed = nullptr;
int write_meanwhile(const char* call, const std::string& /*path*/) {
  if (std::string(call) != "lock" || g_followed == nullptr) return 0;
  std::exchange(g_followed, nullptr)->finish(key("meanwhile"), encoded(6));
  return 0;
}

// While the next one's file is made: it was told, and so the next one has to know it.
TEST_F(JournalTest, WhatIsWrittenBeforeTheNextOneHasTheFileIsNotLost) {
  write_some();
  const auto first = open();
  std::filesystem::remove(folder_ + "/lock");
  {
    const auto second = open();
    g_followed = first.get();
    base::g_fault_hook = &write_meanwhile;
    second->begin(12, 2, true);
    base::g_fault_hook = nullptr;
    ASSERT_EQ(g_followed, nullptr) << "it has written";
    EXPECT_EQ(decoded(*second->find(key("meanwhile"))), 6);
    second->finish(key("second"), encoded(7));
    EXPECT_THROW(first->finish(key("late"), encoded(1)), FailedPrecondition);
  }
  const auto third = open();
  EXPECT_EQ(decoded(*third->find(key("meanwhile"))), 6);
  EXPECT_EQ(decoded(*third->find(key("second"))), 7);
  EXPECT_EQ(third->generation(), 2);
}

TEST_F(JournalTest, AnotherVersionIsNamed) {
  ValueWriter begin;  // as version 1 had it, without a number in front
  begin.byte(1);
  begin.number(1);
  const std::string record = to_payload(std::move(begin).finish()).text();
  uint64_t front = 0;
  std::memcpy(&front, record.data(), sizeof front);
  const std::string frame = framed(front, record.substr(sizeof front));
  std::filesystem::create_directories(folder_);
  std::ofstream(file(), std::ios::binary) << frame;
  expect_error<FailedPrecondition>({"a journal of version 2", "of version 1", file()},
                                   [&] { open(); });
  EXPECT_EQ(std::filesystem::file_size(file()), frame.size());
}

TEST_F(JournalTest, AProgramMayChangeItsFolder) {
  const std::string before = std::filesystem::current_path();
  std::filesystem::create_directories(folder_);
  std::filesystem::current_path(folder_);
  Journal journal({.folder = "here"});
  std::filesystem::current_path(before);
  journal.begin(11, 1, false);
  journal.finish(key("a"), encoded(3));
  EXPECT_EQ(decoded(*journal.find(key("a"))), 3);
}

TEST_F(JournalTest, NewVariablesForgetEverything) {
  write_some();
  const uint64_t before = open()->last_closure();
  {
    const auto journal = open();
    journal->begin(12, 1, true);
    EXPECT_TRUE(journal->can_resume());
    EXPECT_EQ(journal->origin(), 11) << "what 12 goes on with began in it";
    journal->begin(13, 1, false);
    EXPECT_FALSE(journal->can_resume());
  }
  const auto journal = open();
  EXPECT_FALSE(journal->can_resume());
  EXPECT_FALSE(journal->find(key("once")));
  EXPECT_TRUE(journal->open().empty());
  EXPECT_EQ(journal->origin(), 13);
  EXPECT_GE(journal->last_closure(), before + 2 * (uint64_t{1} << 32)) << "numbers go on";
}

TEST_F(JournalTest, WhatIsForgottenTakesNoRoom) {
  write_some();
  const uint64_t before = open()->last_closure();
  {
    const auto journal = open();
    expect_error<FailedPrecondition>({"that runs", "got 2"}, [&] { journal->forget_finished(); });
    journal->end(6, nullptr);
    journal->end(8, nullptr);
    journal->forget_finished();
    EXPECT_LT(std::filesystem::file_size(file()), 200);
    EXPECT_FALSE(journal->find(key("once")));
    journal->finish(key("next"), encoded(4));
  }
  const auto journal = open();
  EXPECT_TRUE(journal->can_resume());
  EXPECT_EQ(journal->origin(), 11);
  EXPECT_EQ(journal->last_closure(), before);
  EXPECT_FALSE(journal->find(key("plain")));
  EXPECT_EQ(decoded(*journal->find(key("next"))), 4);
}

// A full disk: half a record is taken back, and it goes on when there is room.
TEST_F(JournalTest, WhatCannotBeWrittenIsTakenBack) {
  write_some();
  const auto whole = std::filesystem::file_size(file());
  base::g_fault_hook = &fail_call;
  {
    const auto journal = open();
    g_failing_call = "write";
    expect_error(ErrorCode::kResourceExhausted, {"[journal]", "journal"},
                 [&] { journal->finish(key("last"), encoded(1)); });
    EXPECT_EQ(std::filesystem::file_size(file()), whole);
    journal->end(99, nullptr);  // which was not written that it is decided
    g_failing_call = "";
    journal->finish(key("last"), encoded(9));
    g_failing_call = "fdatasync";
    EXPECT_THROW(journal->finish(key("lost"), encoded(1)), Error);
    g_failing_call = "";
    EXPECT_THROW(journal->finish(key("after"), encoded(1)), Error) << "nobody knows what is there";
  }
  EXPECT_EQ(decoded(*open()->find(key("last"))), 9);
}

// The new file has the name, and what is written would go to the one without.
TEST_F(JournalTest, AFileThatIsNotReplacedForSureTakesNothingMore) {
  base::g_fault_hook = &fail_call;
  const auto journal = open();
  journal->begin(11, 1, false);
  journal->finish(key("before"), encoded(1));
  g_failing_call = "fsync";
  EXPECT_THROW(journal->forget_finished(), Error);
  g_failing_call = "";
  expect_error(ErrorCode::kResourceExhausted, {"[journal]"},
               [&] { journal->finish(key("lost"), encoded(2)); });
  expect_error(ErrorCode::kResourceExhausted, {"[journal]"}, [&] { journal->find(key("before")); });
}

std::atomic<bool> g_holds_sync{false};
std::atomic<int> g_syncs{0};
int hold_sync(const char* call, const std::string& /*path*/) {
  if (std::string(call) != "fdatasync") return 0;
  ++g_syncs;
  while (g_holds_sync) std::this_thread::yield();
  return 0;
}

// While the disk is waited for, other threads write: what is decided then is not lost, and nobody
// waits for a place in a file that is no more.
TEST_F(JournalTest, AFileThatIsReplacedHasWhatWasDecidedMeanwhile) {
  for (const bool is_decided : {true, false}) {
    const auto journal = open();
    journal->begin(11, 1, false);
    g_holds_sync = true;
    g_syncs = 0;
    base::g_fault_hook = &hold_sync;
    std::thread first([&] { journal->finish(key("first"), encoded(1)); });
    while (g_syncs == 0) std::this_thread::yield();
    std::atomic<bool> is_refused{false};
    std::thread forgetting([&] {
      try {
        journal->forget_finished();
      } catch (const FailedPrecondition&) {
        is_refused = true;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it waits
    const auto before = std::filesystem::file_size(file());
    std::thread second([&] {
      if (is_decided) {
        journal->decide(key("second"), settlement(5), encoded(2));
      } else {
        journal->finish(key("second"), encoded(2));
      }
    });
    while (std::filesystem::file_size(file()) == before) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the same
    g_holds_sync = false;
    for (std::thread* each : {&first, &forgetting, &second}) each->join();
    EXPECT_EQ(is_refused, is_decided);
    EXPECT_EQ(journal->open().size(), is_decided ? 1 : 0);
  }
}

// What is on its way to the disk together gets there in any order: a power cut that has lost the
// first of it, and not the second, has lost what nobody was told.
TEST_F(JournalTest, AHoleInWhatNobodyWasToldIsCutOff) {
  write_some();
  const auto whole = std::filesystem::file_size(file());
  const auto damage = [&] {
    std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(whole) + 50);
    out.put('x');
  };
  const std::string copy = folder_ + "/copy";
  {
    const auto journal = open();
    g_holds_sync = true;
    g_syncs = 0;
    base::g_fault_hook = &hold_sync;
    std::thread one([&] { journal->finish(key("one"), encoded(1)); });
    while (g_syncs == 0) std::this_thread::yield();
    const auto before = std::filesystem::file_size(file());
    std::thread two([&] { journal->finish(key("two"), encoded(2)); });
    while (std::filesystem::file_size(file()) == before) std::this_thread::yield();
    std::filesystem::copy_file(file(), copy);  // as a power cut would leave it, but for the hole
    g_holds_sync = false;
    one.join();
    two.join();
    journal->finish(key("three"), encoded(3));  // which says that the others were told
  }
  damage();
  expect_error<DataLoss>({str_cat("damage at byte ", whole)}, [&] { open(); });
  std::filesystem::rename(copy, file());
  damage();
  const auto journal = open();
  EXPECT_EQ(std::filesystem::file_size(file()), whole);
  EXPECT_FALSE(journal->find(key("one")));
  EXPECT_FALSE(journal->find(key("two")));
  EXPECT_EQ(decoded(*journal->find(key("once"))), 2);
}

// Without the disk's word each record counts when it is written.
TEST_F(JournalTest, WithoutSyncAHoleIsDamage) {
  const Journal::Options options{.folder = folder_, .sync = false};
  std::uintmax_t begun = 0;
  {
    Journal journal(options);
    journal.begin(11, 1, false);
    begun = std::filesystem::file_size(file());
    journal.finish(key("one"), encoded(1));
    journal.finish(key("two"), encoded(2));
  }
  std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(begun) + 50);
  out.put('x');
  out.close();
  expect_error<DataLoss>({"damage at byte"}, [&] { Journal journal(options); });
}

TEST_F(JournalTest, ThreadsWriteTogether) {
  {
    const auto journal = open();
    journal->begin(1, 1, false);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&journal, t] {
        for (int i = 0; i < 20; ++i) journal->finish(key(str_cat(t, " ", i)), encoded(100 * t + i));
      });
    }
    for (std::thread& each : threads) each.join();
  }
  const auto journal = open();
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(decoded(*journal->find(key(str_cat(t, " ", i)))), 100 * t + i);
    }
  }
}

}  // namespace
}  // namespace cohort::internal::coordinator
