// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/parallel_map.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "cohort/runtime/task_thread.h"

namespace cohort::internal {
namespace {

/// A place in the order of the results.
struct Slot {
  bool ready = false;
  Element element;
  std::exception_ptr error;
};

class ParallelMapStream final : public ElementStream {
 public:
  ParallelMapStream(MapCall call, std::unique_ptr<ElementStream> input, int threads)
      : call_(std::move(call)),
        input_(std::move(input)),
        capacity_(2 * static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      threads_.push_back(
          std::make_unique<TaskThread>("map", [this](const std::stop_token& stop) { work(stop); }));
    }
  }

  ~ParallelMapStream() override {
    for (auto& thread : threads_) thread->request_stop();
    threads_.clear();
  }

  bool next(Element& out) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slots_.empty() ? ended_ : slots_.front()->ready; });
    if (slots_.empty()) return false;
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    changed_.notify_all();
    lock.unlock();
    if (slot->error) std::rethrow_exception(slot->error);
    out = std::move(slot->element);
    return true;
  }

 private:
  void work(const std::stop_token& stop) {
    while (true) {
      Element element;
      int64_t index = 0;
      Slot* slot = take(stop, element, index);
      if (slot == nullptr) return;
      Element result;
      // The reader becomes the error's only owner.
      std::exception_ptr error = std::move(slot->error);
      if (error == nullptr) {
        try {
          result = call_(element, index).materialize();
        } catch (...) {
          error = std::current_exception();
        }
      }
      std::lock_guard lock(mutex_);
      slot->element = std::move(result);
      slot->error = std::move(error);
      slot->ready = true;
      changed_.notify_all();
    }
  }

  /// Reads the next input and books its place; null at the end. One thread at a time reads.
  Slot* take(const std::stop_token& stop, Element& element, int64_t& index) {
    std::lock_guard reading(input_mutex_);
    {
      std::unique_lock lock(mutex_);
      const bool room =
          changed_.wait(lock, stop, [&] { return ended_ || slots_.size() < capacity_; });
      if (!room || ended_ || stop.stop_requested()) return nullptr;
    }
    std::exception_ptr error;
    bool more = true;
    try {
      more = input_->next(element);
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    if (!more) {
      ended_ = true;
      changed_.notify_all();
      return nullptr;
    }
    slots_.push_back(std::make_unique<Slot>());
    if (error == nullptr) index = next_index_++;
    slots_.back()->error = std::move(error);
    return slots_.back().get();
  }

  const MapCall call_;
  const std::unique_ptr<ElementStream> input_;  ///< Guarded by input_mutex_.
  const std::size_t capacity_;

  std::mutex input_mutex_;  ///< Taken before mutex_.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::deque<std::unique_ptr<Slot>> slots_;
  bool ended_ = false;
  int64_t next_index_ = 0;

  std::vector<std::unique_ptr<TaskThread>> threads_;  ///< Last: joined before the rest goes.
};

}  // namespace

std::unique_ptr<ElementStream> make_parallel_map_stream(MapCall call,
                                                        std::unique_ptr<ElementStream> input,
                                                        int threads) {
  return std::make_unique<ParallelMapStream>(std::move(call), std::move(input), threads);
}

}  // namespace cohort::internal
