// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/closure_queue.h"

#include <utility>

#include "cohort/base/check.h"

namespace cohort::internal::coordinator {

void ClosureQueue::put(ClosurePtr closure) {
  COHORT_CHECK(!is_full() && !has_error(), "a function was scheduled where it could not be");
  waiting_.push_back(std::move(closure));
}

std::vector<ClosurePtr> ClosureQueue::take(int worker, std::size_t most) {
  std::vector<ClosurePtr> out;
  while (out.size() < most && can_take(worker)) {
    out.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    clocks_.begin(worker, out.back()->is_step);
    running_[out.back()->id] = {.worker = worker, .closure = out.back()};
  }
  return out;
}

std::vector<ClosurePtr> ClosureQueue::take_message(int worker, std::size_t most,
                                                   std::size_t most_bytes) {
  std::vector<ClosurePtr> out = take(worker, most == 0 ? 0 : 1);
  std::size_t bytes = out.empty() ? 0 : out.front()->arguments.size();
  while (!out.empty() && out.size() < most && !out.back()->counts_once && bytes < most_bytes &&
         can_take(worker)) {
    out.push_back(take(worker, 1).front());
    bytes += out.back()->arguments.size();
  }
  return out;
}

ClosurePtr ClosureQueue::leave(int worker, uint64_t id, bool has_run) {
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.worker != worker) return nullptr;
  ClosurePtr out = std::move(found->second.closure);
  running_.erase(found);
  clocks_.end(worker, out->is_step, has_run);
  return out;
}

ClosurePtr ClosureQueue::end(int worker, uint64_t id) {
  ClosurePtr closure = leave(worker, id, /*has_run=*/true);
  settle();
  return closure;
}

ClosurePtr ClosureQueue::fail(int worker, uint64_t id, const std::exception_ptr& error) {
  ClosurePtr closure = leave(worker, id, /*has_run=*/true);
  if (closure && !error_) error_ = error;
  settle();
  return closure;
}

void ClosureQueue::hand_back(int worker, uint64_t id) {
  ClosurePtr closure = leave(worker, id, /*has_run=*/false);
  if (closure) waiting_.push_front(std::move(closure));
  settle();
}

void ClosureQueue::return_to_end(ClosurePtr closure) {
  if (has_error()) {
    cancelled_.push_back({.closure = std::move(closure)});
  } else {
    waiting_.push_back(std::move(closure));
  }
}

void ClosureQueue::put_back(int worker, uint64_t id) {
  if (ClosurePtr closure = leave(worker, id, /*has_run=*/false)) return_to_end(std::move(closure));
  settle();
}

void ClosureQueue::lose_worker(int worker) {
  clocks_.leave(worker);
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->second.worker == worker) {
      return_to_end(std::move(it->second.closure));
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
  settle();
}

void ClosureQueue::fail_for_good(const std::exception_ptr& error) {
  if (is_over_) return;
  error_ = error;
  is_over_ = true;
  for (auto& [id, running] : running_) {
    cancelled_.push_back({.closure = std::move(running.closure), .error = error});
  }
  running_.clear();
  settle();
}

// What waits is cancelled as soon as nothing runs any more, so that nobody waits for its result.
void ClosureQueue::settle() {
  if (is_error_ripe()) {
    for (ClosurePtr& closure : waiting_) {
      cancelled_.push_back(
          {.closure = std::move(closure), .error = is_over_ ? error_ : std::exception_ptr()});
    }
    waiting_.clear();
  }
  if (is_idle()) clocks_.align();
}

std::exception_ptr ClosureQueue::take_error() {
  COHORT_CHECK(is_error_ripe(), "an error was taken that is none, or while functions run");
  return is_over_ ? error_ : std::exchange(error_, nullptr);
}

std::vector<CancelledClosure> ClosureQueue::take_cancelled() {
  return std::exchange(cancelled_, {});
}

}  // namespace cohort::internal::coordinator
