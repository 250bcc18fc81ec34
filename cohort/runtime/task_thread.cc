// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/task_thread.h"

#include <system_error>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::runtime {
namespace {

std::jthread start(const std::string& name, std::function<void(std::stop_token)> task) {
  try {
    return std::jthread([name, task = std::move(task)](std::stop_token stop) {
      set_thread_name(name);
      IntraOpThreads one_thread(1);
      task(std::move(stop));
    });
  } catch (const std::system_error& e) {
    throw Error(
        ErrorCode::kResourceExhausted,
        str_cat("[", name, "] expected the system to start a background thread, got ", e.what(),
                "; raise the limits of processes (ulimit -u, pids.max) and memory"));
  }
}

}  // namespace

TaskThread::TaskThread(std::string name, std::function<void(std::stop_token)> task)
    : thread_(start(name, std::move(task))) {}

TaskThread::~TaskThread() {
  // Never joined, never destroyed: a std::jthread can only wait for its thread, or let go of one.
  if (!process_.is_ours()) static_cast<void>(new std::jthread(std::move(thread_)));
}

void TaskThread::request_stop() { thread_.request_stop(); }

void TaskThread::join() {
  process_.check("task_thread.join", "a background thread");
  if (thread_.joinable()) thread_.join();
}

}  // namespace cohort::internal::runtime
