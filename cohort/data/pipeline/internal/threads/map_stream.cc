// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/map_stream.h"

#include <chrono>
#include <condition_variable>
#include <exception>

#include "cohort/base/mutex.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/threads/ring.h"
#include "cohort/data/pipeline/internal/threads/worker_set.h"

namespace cohort::internal::data {
namespace {

/// A result, or the place that one has booked.
struct Slot {
  bool ready = false;
  Element element;
  std::exception_ptr error;
};

class MapStream final : public ElementStream {
 public:
  MapStream(MapCall call, std::unique_ptr<ElementStream> input, MapSetting setting)
      : call_(std::move(call)),
        input_(std::move(input)),
        ordered_(setting.ordered),
        fixed_(setting.threads),
        tuner_(std::move(setting.tuner)),
        pass_(Pass::current()),
        stage_(current_stage()),
        workers_(
            "map", [this](const std::stop_token& stop) { work(stop); },
            [this](std::exception_ptr error) { fail(std::move(error)); },
            tuner_ ? tuner_->consumer_wait() : current_consumer_wait()) {}

  ~MapStream() override { workers_.resize(0); }

  bool next(Element& out) override {
    start();
    std::chrono::nanoseconds waited{0};
    const bool more = is_quiet() ? call_here(out) : take_result(out, waited);
    if (more && tuner_ != nullptr) use(tuner_->reader_got_one(waited));
    return more;
  }

  void start() override {
    if (tuner_ == nullptr) use(fixed_);
  }

  void save(StateWriter& out) override {
    // Whoever reads the input ends that first; calls under way become results of the position.
    const base::MutexLock reading(input_mutex_);
    const base::MutexLock lock(mutex_);
    reader_waits_ = true;
    ready_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) {
      return ready_count_ == slots_.size() || broken_ != nullptr;
    });
    reader_waits_ = false;
    if (broken_) std::rethrow_exception(broken_);
    out.put_int(ended_ ? 1 : 0);
    out.put_int(next_index_);
    out.put_int(static_cast<int64_t>(slots_.size()));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      out.put_error(slots_[i].error);
      if (!slots_[i].error) out.put_element(slots_[i].element);
    }
    input_->save(out);
  }
  // Before there are threads.
  void restore(StateReader& in) override COHORT_NO_THREAD_SAFETY_ANALYSIS {
    ended_ = in.get_flag();
    next_index_ = in.get_int();
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      Slot slot{true, {}, in.get_error()};
      if (!slot.error) slot.element = in.get_element();
      slots_.push_back(std::move(slot));
    }
    ready_count_ = slots_.size();
    input_->restore(in);
  }

 private:
  /// 1: calls on the reader's thread; more: on so many others.
  void use(int calls) {
    if (calls == calls_) return;
    calls_ = calls;
    quiet_ = false;
    {
      const base::MutexLock lock(mutex_);
      const std::size_t capacity = 2 * static_cast<std::size_t>(calls);
      // Now: an element that was read and finds no place would be lost.
      slots_.reserve(capacity);
      capacity_ = capacity;
    }
    workers_.resize(calls > 1 ? static_cast<std::size_t>(calls) : 0);
  }

  /// True when all is the reader's: no threads, and no results of former ones.
  bool is_quiet() {
    if (quiet_ || !workers_.empty()) return quiet_;
    const base::MutexLock reading(input_mutex_);  // Threads that leave may be reading.
    const base::MutexLock lock(mutex_);
    quiet_ = slots_.empty() && broken_ == nullptr;
    return quiet_;
  }

  // While is_quiet(): there is nobody else.
  bool call_here(Element& out) COHORT_NO_THREAD_SAFETY_ANALYSIS {
    Element element;
    if (ended_ || !input_->next(element)) return false;
    StageTuner::CallTimer timer(tuner_.get());
    out = call_(element, next_index_++);
    return true;
  }

  bool take_result(Element& out, std::chrono::nanoseconds& waited) {
    base::MutexLock lock(mutex_);
    if (stage_ != nullptr) stage_->note_buffer(ready_count_, capacity_);
    const auto arrived = [&]() COHORT_REQUIRES(mutex_) {
      return broken_ != nullptr || (slots_.empty() ? ended_ : slots_.front().ready);
    };
    if (!arrived()) waited = wait_for_result(arrived);
    if (broken_) std::rethrow_exception(broken_);
    if (slots_.empty()) return false;
    Slot slot = slots_.pop_front();
    ++first_;
    --ready_count_;
    const bool wake = threads_waiting_ > 0;
    lock.unlock();
    if (wake) room_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    out = std::move(slot.element);
    return true;
  }

  template <class Arrived>
  std::chrono::nanoseconds wait_for_result(const Arrived& arrived) COHORT_REQUIRES(mutex_) {
    WorkTimer timer(stage_, WorkTimer::kWait);
    const auto begin = std::chrono::steady_clock::now();
    reader_waits_ = true;
    ready_.wait(mutex_, pass_->stop(), arrived);
    reader_waits_ = false;
    if (!arrived()) pass_->check();
    return std::chrono::steady_clock::now() - begin;
  }

  /// A place may be lost: whoever reads gets the error, now and later.
  void fail(std::exception_ptr error) {
    const base::MutexLock lock(mutex_);
    broken_ = std::move(error);
    ended_ = true;
    ready_.notify_all();
    room_.notify_all();
  }

  void work(const std::stop_token& stop) {
    Element element;
    Booking booking;
    while (take(stop, element, booking)) {
      Element result;
      std::exception_ptr error;
      try {
        WorkTimer timer(stage_, WorkTimer::kOwn);
        StageTuner::CallTimer call_timer(tuner_.get());
        result = call_(element, booking.index).materialize();
      } catch (...) {
        error = std::current_exception();
      }
      element = {};
      // The reader becomes the error's only owner.
      deliver(booking.place, std::move(result), std::move(error));
    }
  }

  struct Booking {
    int64_t place = 0;  ///< Since the start, as first_.
    int64_t index = 0;  ///< Of the element.
  };

  /// Reads the next input and books its place; false at the end. One thread at a time reads.
  bool take(const std::stop_token& stop, Element& element, Booking& booking) {
    while (true) {
      wait_for_room(stop);
      // Room is waited for without the input: a saver needs it, and frees no room.
      const base::MutexLock reading(input_mutex_);
      if (stop.stop_requested() || has_ended()) return false;
      if (!has_room()) continue;
      std::exception_ptr error;
      bool more = true;
      try {
        more = input_->next(element);
      } catch (...) {
        error = std::current_exception();
      }
      if (pass_->ended_by(error)) return false;
      if (book(more, error == nullptr, booking)) return true;
      if (!more) return false;
      deliver(booking.place, {}, std::move(error));
    }
  }

  void wait_for_room(const std::stop_token& stop) {
    const base::MutexLock lock(mutex_);
    ++threads_waiting_;
    room_.wait(mutex_, stop,
               [&]() COHORT_REQUIRES(mutex_) { return ended_ || slots_.size() < capacity_; });
    --threads_waiting_;
  }

  /// A place for what was read; false if there is nothing to call the function with.
  bool book(bool more, bool has_element, Booking& booking) {
    const base::MutexLock lock(mutex_);
    if (!more) {
      ended_ = true;
      room_.notify_all();
      if (reader_waits_) ready_.notify_one();
      return false;
    }
    booking.place = first_ + static_cast<int64_t>(slots_.size());
    slots_.push_back(Slot{});
    if (has_element) booking.index = next_index_++;
    return has_element;
  }

  void deliver(int64_t place, Element result, std::exception_ptr error) {
    const base::MutexLock lock(mutex_);
    // Without an order, the first place that is still open will do.
    if (!ordered_) place = first_ + static_cast<int64_t>(ready_count_);
    Slot& slot = slots_[static_cast<std::size_t>(place - first_)];
    slot = {true, std::move(result), std::move(error)};
    ++ready_count_;
    // The reader wants the one in front, a saver all of them.
    const bool wanted = slots_.front().ready || ready_count_ == slots_.size();
    if (reader_waits_ && wanted) ready_.notify_one();
  }

  bool has_room() {
    const base::MutexLock lock(mutex_);
    return ended_ || slots_.size() < capacity_;
  }
  bool has_ended() {
    const base::MutexLock lock(mutex_);
    return ended_;
  }

  const MapCall call_;
  base::Mutex input_mutex_ COHORT_ACQUIRED_BEFORE(mutex_);
  const std::unique_ptr<ElementStream> input_ COHORT_PT_GUARDED_BY(input_mutex_);
  const bool ordered_;
  const int fixed_;                          ///< Calls at once without a tuner.
  const std::unique_ptr<StageTuner> tuner_;  ///< Null: their number is fixed.
  const std::shared_ptr<Pass> pass_;
  Stage* const stage_;  ///< Owned by pass_; null without a report.
  // The reader's.
  int calls_ = 1;
  bool quiet_ = false;

  base::Mutex mutex_;
  std::condition_variable_any ready_;  ///< For the reader.
  std::condition_variable_any room_;   ///< For the threads.
  // Waking costs a system call: nobody is woken who does not wait.
  Ring<Slot> slots_ COHORT_GUARDED_BY(mutex_);
  int64_t first_ COHORT_GUARDED_BY(mutex_) = 0;            ///< Place of the slot in front.
  std::size_t ready_count_ COHORT_GUARDED_BY(mutex_) = 0;  ///< Slots that are ready.
  std::size_t capacity_ COHORT_GUARDED_BY(mutex_) = 2;
  bool ended_ COHORT_GUARDED_BY(mutex_) = false;
  /// Null while all is well; what a thread could not hand over.
  std::exception_ptr broken_ COHORT_GUARDED_BY(mutex_);
  bool reader_waits_ COHORT_GUARDED_BY(mutex_) = false;
  int threads_waiting_ COHORT_GUARDED_BY(mutex_) = 0;
  int64_t next_index_ COHORT_GUARDED_BY(mutex_) = 0;

  WorkerSet workers_;  ///< Last: joined before the rest goes.
};

}  // namespace

std::unique_ptr<ElementStream> make_map_stream(MapCall call, std::unique_ptr<ElementStream> input,
                                               MapSetting setting) {
  return std::make_unique<MapStream>(std::move(call), std::move(input), std::move(setting));
}

}  // namespace cohort::internal::data
