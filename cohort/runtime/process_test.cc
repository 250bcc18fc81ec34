// SPDX-License-Identifier: Apache-2.0
//
// Threads after fork, and where the system refuses them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <thread>

#include "cohort/base/strings.h"
#include "cohort/runtime/internal/test_group.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/task_thread.h"
#include "cohort/runtime/tensor.h"
#include "cohort/testing/child.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::runtime {
namespace {

using testing::error_text;
using testing::kCanLimitChildren;
using testing::status_of_child;

// Work for as many threads as OpenMP has for this one.
bool parallel_work() {
  const Tensor x = ones({1 << 20});
  return (x + x).sum().item<double>() == 2 << 20;
}

TEST(Fork, AGroupOfTheParentSaysSoInTheChild) {
  ReplicaGroup group({.replicas = 2});
  expect_usable(group);
  EXPECT_EQ(status_of_child([&] {
              const std::string text =
                  error_text<FailedPrecondition>([&] { group.run([](int) {}); });
              return text.find("made before fork") != std::string::npos ? 0 : 1;
            }),
            0);
  expect_usable(group);
}

TEST(Fork, AGroupThatNeverRanSaysSo) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs threads after fork";
  ReplicaGroup group({.replicas = 2});
  EXPECT_EQ(status_of_child([&] {
              return code_of_run(group, [](int) {}) == ErrorCode::kFailedPrecondition ? 0 : 1;
            }),
            0);
}

TEST(Fork, WhatThreadsOfTheParentBelongToEndsInTheChild) {
  auto group = std::make_optional<ReplicaGroup>(ReplicaGroupOptions{.replicas = 3});
  expect_usable(*group);
  auto task = std::make_optional<TaskThread>("task", [](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  EXPECT_EQ(status_of_child([&] {
              group.reset();
              task.reset();
              return 0;
            }),
            0);
}

TEST(Fork, TheChildMakesItsOwn) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs threads after fork";
  ReplicaGroup group({.replicas = 2, .intra_op_threads = 2});
  {
    // As a step of the parent's would: OpenMP's threads of this thread stay in the parent, too.
    IntraOpThreads threads(2);
    ASSERT_TRUE(parallel_work());
    run(group, [](int) { parallel_work(); });
  }
  EXPECT_EQ(status_of_child([] {
              ReplicaGroup own({.replicas = 2, .intra_op_threads = 2});
              std::atomic<int> replicas{0};
              own.run([&](int) { replicas += parallel_work() ? 1 : 0; });
              ReplicaGroup alone({.replicas = 1, .intra_op_threads = 2});
              alone.run([&](int) { replicas += parallel_work() ? 1 : 0; });
              return parallel_work() && replicas == 3 ? 0 : 1;
            }),
            0);
}

// Processes with ids, and a /dev/shm, that nobody else sees. False where that is not allowed.
bool enter_own_namespaces() {
  constexpr int kOwn = CLONE_NEWPID | CLONE_NEWNS;
  if (::unshare(kOwn) != 0 && ::unshare(CLONE_NEWUSER | kOwn) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) == 0;
}

// What a killed process of the same id has left of libomp, where /proc is of other processes.
TEST(Fork, IntoANewProcessNamespaceForgetsWhatAKilledProcessHasLeft) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs threads after fork";
  parallel_work();
  EXPECT_EQ(status_of_child([] {
              if (!enter_own_namespaces()) return 0;
              const std::string name = str_cat("/__KMP_REGISTERED_LIB_1_", ::getuid());
              const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
              constexpr char kText[1024] = "0x10-cafe1234-libomp.so.5";
              const bool written = ::write(file, kText, sizeof(kText)) == sizeof(kText);
              ::close(file);
              const int status = status_of_child([] { return parallel_work() ? 0 : 1; });
              return written ? status : 2;
            }),
            0);
}

TEST(RefusedThreads, AreAnErrorWithTheirNumber) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(status_of_child([] {
              ReplicaGroup group({.replicas = 16});
              rlimit before{};
              getrlimit(RLIMIT_AS, &before);
              testing::limit_address_space(std::size_t{60} << 20);  // some stacks of 8 MB
              const std::string text = error_text<Error>([&] { group.run([](int) {}); });
              for (const char* part : {"15 threads for 16 replicas", " started: ", "ulimit -u"}) {
                if (text.find(part) == std::string::npos) throw Internal(text);
              }
              // Nothing is left hanging: with more room the same group runs.
              setrlimit(RLIMIT_AS, &before);
              std::atomic<int> ran{0};
              group.run([&](int) { ++ran; });
              return ran == 16 ? 0 : 1;
            }),
            0);
}

TEST(RefusedThreads, ATaskSaysSo) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(status_of_child([] {
              testing::limit_address_space(std::size_t{1} << 20);
              // The C library has kept stacks of threads that ended.
              std::deque<TaskThread> tasks;
              try {
                while (tasks.size() < 100) {
                  tasks.emplace_back("prefetch", [](const std::stop_token& stop) {
                    while (!stop.stop_requested()) std::this_thread::yield();
                  });
                }
              } catch (const Error& e) {
                const std::string text = e.what();
                return e.code() == ErrorCode::kResourceExhausted && text.starts_with("[prefetch]")
                           ? 0
                           : 1;
              }
              return 2;
            }),
            0);
}

}  // namespace
}  // namespace cohort::internal::runtime
