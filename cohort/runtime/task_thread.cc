// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/task_thread.h"

#include <utility>

#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal {

TaskThread::TaskThread(std::string name, std::function<void(std::stop_token)> task)
    : thread_([name = std::move(name), task = std::move(task)](std::stop_token stop) {
        set_thread_name(name);
        IntraOpThreads one_thread(1);
        task(std::move(stop));
      }) {}

TaskThread::~TaskThread() = default;  // std::jthread asks to stop and joins.

void TaskThread::request_stop() { thread_.request_stop(); }

void TaskThread::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace cohort::internal
