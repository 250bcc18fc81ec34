// SPDX-License-Identifier: Apache-2.0
//
// The background threads of one stream, as many as are wanted at the time.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/stage.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal::data {

/// Threads that run one task each, for the pass and the stage of the thread that made the set.
/// What leaves a task (memory that was refused between two elements) goes to `failed` on its
/// thread. Blocks: the destructor, until the tasks have ended. Threads: bound to its stream's
/// reader.
class WorkerSet {
 public:
  using Failed = std::function<void(std::exception_ptr)>;
  WorkerSet(std::string name, std::function<void(const std::stop_token&)> task, Failed failed,
            std::shared_ptr<const ConsumerWait> consumer_wait);
  ~WorkerSet();
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;

  /// Starts threads, or asks some to stop: these end what they do, and nobody waits for it.
  /// Errors: Error kResourceExhausted if the system refuses a thread; the set has the others.
  void resize(std::size_t count);
  /// Those that were not asked to stop.
  std::size_t size() const { return workers_.size(); }
  bool empty() const { return workers_.empty(); }

 private:
  struct Worker {
    std::atomic<bool> done{false};
    std::unique_ptr<runtime::TaskThread> thread;  ///< Last: joined before the flag goes.
  };

  std::unique_ptr<runtime::TaskThread> start(Worker& worker);

  const std::string name_;
  const std::function<void(const std::stop_token&)> task_;
  const Failed failed_;
  const std::shared_ptr<Pass> pass_;
  Stage* const stage_;
  const std::shared_ptr<const ConsumerWait> consumer_wait_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Worker>> leaving_;
};

}  // namespace cohort::internal::data
