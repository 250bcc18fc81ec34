// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/parallel_map.h"

#include <algorithm>
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
        capacity_(2 * static_cast<std::size_t>(threads)),
        thread_count_(threads) {}

  ~ParallelMapStream() override {
    for (auto& thread : threads_) thread->request_stop();
    threads_.clear();
  }

  bool next(Element& out) override {
    start();
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

  void start() override {
    for (int i = static_cast<int>(threads_.size()); i < thread_count_; ++i) {
      threads_.push_back(
          std::make_unique<TaskThread>("map", [this](const std::stop_token& stop) { work(stop); }));
    }
  }

  void save(StateWriter& out) override {
    // Whoever reads the input ends that first; calls under way are part of the position.
    std::lock_guard reading(input_mutex_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(slots_.begin(), slots_.end(), [](const auto& s) { return s->ready; });
    });
    out.put_int(ended_ ? 1 : 0);
    out.put_int(next_index_);
    out.put_int(static_cast<int64_t>(slots_.size()));
    for (const auto& slot : slots_) {
      out.put_error(slot->error);
      if (!slot->error) out.put_element(slot->element);
    }
    input_->save(out);
  }
  void restore(StateReader& in) override {
    ended_ = in.get_flag();
    next_index_ = in.get_int();
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      auto slot = std::make_unique<Slot>();
      slot->error = in.get_error();
      if (!slot->error) slot->element = in.get_element();
      slot->ready = true;
      slots_.push_back(std::move(slot));
    }
    input_->restore(in);
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
    std::unique_lock reading(input_mutex_);
    // Room is waited for without the input: a saver needs it, and frees no room.
    while (!has_room()) {
      reading.unlock();
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, stop, [&] { return ended_ || slots_.size() < capacity_; });
      }
      if (stop.stop_requested()) return nullptr;
      reading.lock();
    }
    if (stop.stop_requested() || has_ended()) return nullptr;
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

  bool has_room() {
    std::lock_guard lock(mutex_);
    return ended_ || slots_.size() < capacity_;
  }
  bool has_ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }

  const MapCall call_;
  const std::unique_ptr<ElementStream> input_;  ///< Guarded by input_mutex_.
  const std::size_t capacity_;
  const int thread_count_;

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
