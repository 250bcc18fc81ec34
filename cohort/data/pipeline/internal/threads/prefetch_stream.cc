// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/prefetch_stream.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>

#include "cohort/base/mutex.h"
#include "cohort/base/scope_exit.h"
#include "cohort/data/core/internal/element_bytes.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/threads/ring.h"
#include "cohort/runtime/task_thread.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::data {
namespace {

/// A thread reads ahead into a bounded queue. An error takes its place among the elements.
class PrefetchStream final : public ElementStream {
 public:
  PrefetchStream(std::unique_ptr<ElementStream> input, PrefetchSetting setting)
      : input_(std::move(input)),
        consumer_wait_(setting.consumer_wait),
        pass_(Pass::current()),
        stage_(current_stage()),
        is_tuned_(setting.tuner.has_value()),
        meter_(std::move(setting.consumer_wait)),
        tuner_(setting.tuner),
        capacity_(tuner_ ? tuner_->capacity() : setting.capacity) {}

  bool next(Element& out) override {
    start();
    base::MutexLock lock(mutex_);
    if (stage_ != nullptr) stage_->note_buffer(queue_.size(), capacity_);
    if (tuner_) tune();
    meter_.reader_got_one(wait_for_element());
    if (queue_.empty()) {
      if (broken_) std::rethrow_exception(broken_);
      return false;
    }
    Item item = queue_.pop_front();
    const bool wake = thread_waits_ && (!by_the_bufferful() || queue_.empty());
    lock.unlock();
    if (wake) emptied_.notify_one();
    if (item.error) std::rethrow_exception(item.error);
    out = std::move(item.element);
    return true;
  }

  void start() override {
    if (thread_) return;
    thread_ =
        std::make_unique<runtime::TaskThread>("prefetch", [this](const std::stop_token& stop) {
          PassScope scope(pass_.get(), stage_, consumer_wait_);
          try {
            fill(stop);
          } catch (...) {
            fail(std::current_exception());
          }
        });
    if (stage_ != nullptr) stage_->note_threads(1);
  }

  // While it is paused, the thread stays out of input_ and queue_.
  void save(StateWriter& out) override COHORT_NO_THREAD_SAFETY_ANALYSIS {
    pause();
    const base::ScopeExit go_on([&] { resume(); });
    if (broken_) std::rethrow_exception(broken_);
    out.put_int(ended_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(queue_.size()));
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      out.put_error(queue_[i].error);
      if (!queue_[i].error) out.put_element(queue_[i].element);
    }
    input_->save(out);
  }
  // Before there is a thread.
  void restore(StateReader& in) override COHORT_NO_THREAD_SAFETY_ANALYSIS {
    ended_ = in.get_flag();
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      Item item;
      item.error = in.get_error();
      if (!item.error) item.element = in.get_element();
      queue_.push_back(std::move(item));
    }
    input_->restore(in);
  }

 private:
  static constexpr std::chrono::microseconds kQuick{100};
  static constexpr std::chrono::milliseconds kPatience{1};

  struct Item {
    Element element;
    std::exception_ptr error;
  };

  std::chrono::nanoseconds wait_for_element() COHORT_REQUIRES(mutex_) {
    const auto arrived = [&]() COHORT_REQUIRES(mutex_) { return ended_ || !queue_.empty(); };
    if (arrived()) return {};
    WorkTimer timer(stage_, WorkTimer::kWait);
    const auto begin = std::chrono::steady_clock::now();
    reader_waits_ = true;
    if (one_core_) {
      // Nobody wakes it for the first ones of a bufferful.
      const std::stop_token stop = pass_->stop();
      while (!filled_.wait_for(mutex_, stop, kPatience, arrived) && !stop.stop_requested()) {
      }
    } else {
      filled_.wait(mutex_, pass_->stop(), arrived);
    }
    reader_waits_ = false;
    if (!arrived()) pass_->check();
    return std::chrono::steady_clock::now() - begin;
  }

  /// Where all threads share one core, waking another one takes the core away: then elements that
  /// are made quickly go over many at a time.
  bool by_the_bufferful() const COHORT_REQUIRES(mutex_) { return one_core_ && quick_; }

  void tune() COHORT_REQUIRES(mutex_) {
    tuner_->reader_asks(queue_.size(), element_bytes_);
    if (tuner_->capacity() == capacity_) return;
    capacity_ = tuner_->capacity();
    if (thread_waits_) emptied_.notify_one();
  }

  void pause() {
    const base::MutexLock lock(mutex_);
    paused_ = true;
    filled_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) { return !reading_; });
  }
  void resume() {
    {
      const base::MutexLock lock(mutex_);
      paused_ = false;
    }
    emptied_.notify_one();
  }

  void fill(const std::stop_token& stop) {
    while (wait_for_room(stop)) {
      Item item;
      bool more = true;
      const auto begin = std::chrono::steady_clock::now();
      try {
        more = input_->next(item.element);
        // Rows that are gathered late are still the work of the step before.
        WorkTimer timer(more ? input_->stage() : nullptr, WorkTimer::kOwn);
        if (more) item.element = item.element.materialize();
      } catch (...) {
        item.error = std::current_exception();
      }
      const int64_t bytes = is_tuned_ && more && !item.error ? element_bytes(item.element) : 0;
      const bool cancelled = pass_->ended_by(item.error);
      base::MutexLock lock(mutex_);
      reading_ = false;
      quick_ = std::chrono::steady_clock::now() - begin < kQuick;
      element_bytes_ = std::max(element_bytes_, bytes);
      if (more && !cancelled) {
        queue_.push_back(std::move(item));
        if (tuner_) tuner_->filled(queue_.size());
      } else {
        ended_ = !cancelled;
      }
      const bool ready = !by_the_bufferful() || ended_ || queue_.size() >= capacity_;
      const bool wake = paused_ || (reader_waits_ && ready);
      lock.unlock();
      if (wake) filled_.notify_one();
      if (!more || cancelled) return;
    }
  }

  /// An element may be lost: whoever reads gets the error, now and later.
  void fail(std::exception_ptr error) {
    const base::MutexLock lock(mutex_);
    broken_ = std::move(error);
    ended_ = true;
    reading_ = false;
    filled_.notify_all();
  }

  /// False if the thread is to end, else the input is the thread's until reading_ is false.
  bool wait_for_room(const std::stop_token& stop) {
    const base::MutexLock lock(mutex_);
    if (ended_) return false;
    thread_waits_ = true;
    emptied_.wait(mutex_, stop,
                  [&]() COHORT_REQUIRES(mutex_) { return queue_.size() < capacity_ && !paused_; });
    thread_waits_ = false;
    if (stop.stop_requested()) return false;
    reading_ = true;
    return true;
  }

  const std::unique_ptr<ElementStream> input_;  ///< The thread's while reading_.
  const std::shared_ptr<const ConsumerWait> consumer_wait_;
  const std::shared_ptr<Pass> pass_;
  Stage* const stage_;  ///< Owned by pass_; null without a report.
  const bool one_core_ = runtime::usable_cores() == 1;
  const bool is_tuned_;
  ConsumerWaitMeter meter_;  ///< The reader's.

  base::Mutex mutex_;
  std::condition_variable_any filled_;
  std::condition_variable_any emptied_;
  // Waking costs a system call: nobody is woken who does not wait.
  Ring<Item> queue_ COHORT_GUARDED_BY(mutex_);
  std::optional<BufferTuner> tuner_ COHORT_GUARDED_BY(mutex_);  ///< Null: the capacity is fixed.
  std::size_t capacity_ COHORT_GUARDED_BY(mutex_);
  int64_t element_bytes_ COHORT_GUARDED_BY(mutex_) =
      0;  ///< The largest so far; measured for the tuner.
  bool ended_ COHORT_GUARDED_BY(mutex_) = false;
  /// Null while all is well; what the thread could not hand over.
  std::exception_ptr broken_ COHORT_GUARDED_BY(mutex_);
  bool reading_ COHORT_GUARDED_BY(mutex_) = false;
  bool quick_ COHORT_GUARDED_BY(mutex_) = false;  ///< The last element was.
  bool reader_waits_ COHORT_GUARDED_BY(mutex_) = false;
  bool thread_waits_ COHORT_GUARDED_BY(mutex_) = false;
  bool paused_ COHORT_GUARDED_BY(mutex_) = false;  ///< A saver wants the thread to rest.

  std::unique_ptr<runtime::TaskThread> thread_;  ///< Last: joined before the rest goes.
};

}  // namespace

std::unique_ptr<ElementStream> make_prefetch_stream(std::unique_ptr<ElementStream> input,
                                                    PrefetchSetting setting) {
  return std::make_unique<PrefetchStream>(std::move(input), std::move(setting));
}

}  // namespace cohort::internal::data
