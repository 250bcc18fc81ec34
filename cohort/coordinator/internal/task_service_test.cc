// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/task_service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/server.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

class TaskServiceTest : public ::testing::Test {
 protected:
  void serve(TaskService::Options options) {
    task_.emplace(std::move(options));
    server_.emplace(rpc::RpcServerOptions{}, task_->methods());
  }
  HelloAnswer greet(const CoordinatorIdentity& who) const {
    const Greeting greeting{.who = who, .program = program_identity()};
    return hello_answer_of(client().call("task.hello", to_payload(greeting)));
  }
  HelloAnswer greet_of(const ProgramIdentity& program) const {
    const Greeting greeting{.who = {.session = 7, .generation = 1}, .program = program};
    return hello_answer_of(client().call("task.hello", to_payload(greeting)));
  }
  NewestCoordinator newest() const {
    return newest_of(client().call("task.newest", rpc::Payload()));
  }

 private:
  rpc::RpcClient client() const {
    return rpc::RpcClient({.address = server_->address(), .server_name = "task"});
  }
  std::optional<TaskService> task_;
  std::optional<rpc::RpcServer> server_;
};

// F5: all tasks are one program.
TEST_F(TaskServiceTest, AnotherProgramIsRefusedByItsFirstDifference) {
  serve({.name = "ps 0", .on_greeting = [](uint64_t, bool, const auto& then) { then(); }});
  const auto refused = [&](const ProgramIdentity& program, const std::string& name,
                           const std::string& why) {
    testing::expect_error<FailedPrecondition>(
        {"ps 0", "another program", "the same build", name, why}, [&] { greet_of(program); });
  };
  ProgramIdentity more = program_identity();
  more.functions.emplace_back("theirs", "FvvE");
  refused(more, "\"theirs\"", "not registered in this one");
  ProgramIdentity fewer = program_identity();
  ASSERT_FALSE(fewer.functions.empty());
  const std::string first = fewer.functions.front().first;
  fewer.functions.erase(fewer.functions.begin());
  refused(fewer, "\"" + first + "\"", "not registered in the coordinator's");
  ProgramIdentity other = program_identity();
  other.functions.front().second = "FvvE";
  refused(other, "\"" + first + "\"", "in this one");
  ProgramIdentity rebuilt = program_identity();
  rebuilt.build = "0123";
  refused(rebuilt, "build id 0123", "this one");
  greet_of(program_identity());
}

// A thread that loses its core between the two would forget what was made behind the second answer.
TEST_F(TaskServiceTest, WhatAGreetingForgetsIsForgottenBeforeTheNextIsAnswered) {
  std::latch begun(1);
  base::Mutex mutex;
  std::vector<bool> all;
  serve(
      {.name = "ps 0", .on_greeting = [&](uint64_t /*generation*/, bool is_anew, const auto& then) {
         if (is_anew) {
           begun.count_down();
           std::this_thread::sleep_for(std::chrono::milliseconds(300));
         }
         {
           const base::MutexLock lock(mutex);
           all.push_back(is_anew);
         }
         then();
       }});
  const CoordinatorIdentity who{.session = 7, .generation = 1};
  std::thread first([&] { greet(who); });
  begun.wait();
  greet(who);
  first.join();
  EXPECT_EQ(all, (std::vector<bool>{true, false}));
}

// So that an old copy of the chief's journal is told from its own, also where a server's process
// has none of the state, and others have copies of it.
TEST_F(TaskServiceTest, AnEmptyTaskSaysWithWhatItsChiefGoesOn) {
  serve({.name = "ps 0"});
  EXPECT_EQ(newest().origin, 0);
  EXPECT_FALSE(greet({.session = 8, .generation = 3, .origin = 5}).is_resumed);
  EXPECT_EQ(newest().generation, 3);
  EXPECT_EQ(newest().origin, 5);
  EXPECT_FALSE(greet({.session = 9, .generation = 4, .origin = 5}).is_resumed)
      << "it has nothing of it still";
  greet({.session = 10, .generation = 5});
  EXPECT_EQ(newest().origin, 10);
}

}  // namespace
}  // namespace cohort::internal::coordinator
