// SPDX-License-Identifier: Apache-2.0
//
// What every task of a job answers: who it is, that it lives, and that the job is over.
//
//   TaskService task("worker 1");
//   RpcServer server(options, task.methods());
//   task.wait_for_end();
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/coordinator_identity.h"
#include "cohort/coordinator/status/task_report.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {

/// What a program is: its build, and the functions that it has registered.
struct ProgramIdentity {
  std::string build = {};
  std::vector<std::pair<std::string, std::string>> functions = {};
};
/// This program's. Errors: as registered_functions().
ProgramIdentity program_identity();
/// In words how `theirs` differs from `ours`, the first difference; empty: not at all.
std::string first_difference(const ProgramIdentity& ours, const ProgramIdentity& theirs);

/// A coordinator's greeting: a task whose state began in its origin keeps what it has.
struct Greeting {
  CoordinatorIdentity who = {};
  ProgramIdentity program = {};
};
rpc::Payload to_payload(const Greeting& greeting);
/// Errors, of all: DataLoss.
Greeting greeting_of(const rpc::Payload& payload);
/// The answer of task.newest.
NewestCoordinator newest_of(const rpc::Payload& payload);
/// And of task.hello.
struct HelloAnswer {
  uint64_t incarnation = 0;
  bool is_resumed = false;
};
HelloAnswer hello_answer_of(const rpc::Payload& payload);

/// Threads: thread-safe.
class TaskService {
 public:
  struct Options {
    std::string name = {};  ///< "worker 1", for error texts.
    /// From the last word of a coordinator on, until the job is taken for over.
    std::chrono::milliseconds coordinator_lease = std::chrono::minutes(5);
    /// Whether that holds for the first word, too; else the first coordinator is waited for.
    bool ends_alone = false;
    /// A coordinator has greeted, which is answered by `then`, when nothing of one before it is
    /// under way here any more; is_anew: what is here is to be forgotten ahead of it. One greeting
    /// at a time, in their order. On a thread that must not be blocked; it does not come back to
    /// this object. Unset: at once.
    std::function<void(uint64_t generation, bool is_anew, std::function<void()> then)> on_greeting =
        {};
    /// What it is like, on a thread that must not be blocked; its incarnation and memory are added.
    std::function<TaskReport()> report = {};
  };
  explicit TaskService(Options options);

  /// task.newest, task.hello, task.ping and task.end.
  std::map<std::string, rpc::RpcHandler> methods();
  /// Errors: Error kAborted for a session that has not greeted this process, FailedPrecondition for
  ///         one that another has followed.
  void check_session(uint64_t session, uint64_t generation);
  uint64_t incarnation() const { return incarnation_; }
  /// Blocks: until a coordinator has said that the job is over, or is not heard of any more.
  void wait_for_end();
  void end();

 private:
  rpc::Payload newest() const;
  void hello(const Greeting& greeting, const rpc::RpcReply& reply);
  TaskReport report() const;

  const Options options_;
  const uint64_t incarnation_;
  mutable base::Mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t session_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ COHORT_GUARDED_BY(mutex_) = 0;
  // In which its state began, kept by those that go on with it; 0: in none yet. An empty task that
  // has only heard of a session has nothing of the one that this session resumes.
  uint64_t origin_ COHORT_GUARDED_BY(mutex_) = 0;
  // The one that the newest coordinator goes on with, whether this task has anything of it or not:
  // its journal has been begun with by that one.
  uint64_t claimed_origin_ COHORT_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point heard_ COHORT_GUARDED_BY(mutex_);
  bool is_over_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::internal::coordinator
