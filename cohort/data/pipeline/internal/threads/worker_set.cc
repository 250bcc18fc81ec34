// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/worker_set.h"

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::data {

WorkerSet::WorkerSet(std::string name, std::function<void(const std::stop_token&)> task,
                     Failed failed, std::shared_ptr<const ConsumerWait> consumer_wait)
    : name_(std::move(name)),
      task_(std::move(task)),
      failed_(std::move(failed)),
      pass_(Pass::current()),
      stage_(current_stage()),
      consumer_wait_(std::move(consumer_wait)) {}

WorkerSet::~WorkerSet() {
  // All are asked before one is waited for.
  resize(0);
}

std::unique_ptr<runtime::TaskThread> WorkerSet::start(Worker& worker) {
  return std::make_unique<runtime::TaskThread>(name_, [this, &worker](const auto& stop) {
    PassScope scope(pass_.get(), stage_, consumer_wait_);
    try {
      task_(stop);
    } catch (...) {
      failed_(std::current_exception());
    }
    worker.done = true;
  });
}

void WorkerSet::resize(std::size_t count) {
  std::erase_if(leaving_, [](const auto& worker) { return worker->done.load(); });
  for (; workers_.size() > count; workers_.pop_back()) {
    workers_.back()->thread->request_stop();
    leaving_.push_back(std::move(workers_.back()));
  }
  while (workers_.size() < count) {
    auto worker = std::make_unique<Worker>();
    try {
      worker->thread = start(*worker);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("[dataset.", name_, "] expected ", count,
                                    " background threads, got ", workers_.size(), ": ", e.what()));
    }
    workers_.push_back(std::move(worker));
  }
  if (stage_ != nullptr) stage_->note_threads(workers_.size());
}

}  // namespace cohort::internal::data
