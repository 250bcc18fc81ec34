// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/task_thread.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>

#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/deadline.h"

namespace cohort::internal::runtime {
namespace {

using std::chrono::seconds;
using testing::run_with_deadline;

/// Waits until somebody asks to stop.
void await_stop(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait(lock, stop, [] { return false; });
}

TEST(TaskThread, RunsItsTaskOnceOnANamedThreadOfItsOwn) {
  int runs = 0;
  std::thread::id id;
  char name[16] = {};
  run_with_deadline(seconds(20), [&] {
    TaskThread thread("a long name for a thread", [&](const std::stop_token&) {
      ++runs;
      id = std::this_thread::get_id();
      pthread_getname_np(pthread_self(), name, sizeof name);
    });
    thread.join();
    thread.join();  // a second time is nothing
  });
  EXPECT_EQ(runs, 1);
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_STREQ(name, "a long name for");
}

TEST(TaskThread, InheritsNothing) {
  ReplicaScope replica(nullptr, 1, 2);
  int seen_replica = 0;
  int seen_threads = 0;
  run_with_deadline(seconds(20), [&] {
    TaskThread thread("task", [&](const std::stop_token&) {
      seen_replica = current_replica();
      seen_threads = at::get_num_threads();
    });
    thread.join();
  });
  EXPECT_EQ(seen_replica, -1);
  EXPECT_EQ(seen_threads, 1);
}

TEST(TaskThread, StopsWhenAskedAndWhenDestroyed) {
  for (bool ask : {true, false}) {
    std::atomic<bool> ended{false};
    run_with_deadline(seconds(20), [&] {
      TaskThread thread("task", [&](const std::stop_token& stop) {
        await_stop(stop);
        ended = true;
      });
      if (!ask) return;
      thread.request_stop();
      thread.join();
    });
    EXPECT_TRUE(ended);
  }
}

}  // namespace
}  // namespace cohort::internal::runtime
