// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/interleave_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/base/scope_exit.h"
#include "cohort/data/core/internal/element_bytes.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/threads/interleave_source.h"
#include "cohort/data/pipeline/internal/threads/interleave_turns.h"
#include "cohort/data/pipeline/internal/threads/worker_set.h"

namespace cohort::internal::data {
namespace {

using Item = InterleaveSource::Item;
using Source = InterleaveSource;
using SourcePtr = InterleaveTurns::SourcePtr;
using Step = InterleaveTurns::Step;

constexpr int64_t kLeastAhead = 2;
constexpr int64_t kMostAhead = 16;
constexpr int64_t kBytesAhead = 64 << 20;  ///< Of all turns together.

class InterleaveStream final : public ElementStream {
 public:
  InterleaveStream(OpenDataset open, std::unique_ptr<ElementStream> input,
                   InterleaveSetting setting)
      : open_dataset_(std::move(open)),
        input_(std::move(input)),
        cycle_length_(setting.cycle_length),
        fixed_(setting.threads),
        tuner_(std::move(setting.tuner)),
        pass_(Pass::current()),
        stage_(current_stage()),
        turns_(cycle_length_, setting.block_length, setting.ordered),
        ahead_(static_cast<std::size_t>(std::max(kMostAhead, setting.block_length))),
        workers_(
            "interleave", [this](const std::stop_token& stop) { work(stop); },
            [this](std::exception_ptr error) { fail(std::move(error)); },
            tuner_ ? tuner_->consumer_wait() : current_consumer_wait()) {}

  ~InterleaveStream() override { workers_.resize(0); }

  bool next(Element& out) override;
  void start() override;
  /// While the threads are paused, and before there are any.
  void save(StateWriter& out) override COHORT_NO_THREAD_SAFETY_ANALYSIS;
  void restore(StateReader& in) override COHORT_NO_THREAD_SAFETY_ANALYSIS;

 private:
  // On the thread that reads.
  /// 1: the reader reads; more: so many other threads.
  void use(int threads);
  bool is_quiet();
  /// While is_quiet(): there is nobody else.
  bool next_here(Element& out) COHORT_NO_THREAD_SAFETY_ANALYSIS;
  bool next_of_threads(Element& out, std::chrono::nanoseconds& waited);
  Item take_item(bool& wake) COHORT_REQUIRES(mutex_);
  std::chrono::nanoseconds wait_for_something() COHORT_REQUIRES(mutex_);

  // On background threads.
  void work(const std::stop_token& stop);
  void fail(std::exception_ptr error);
  InterleaveTurns::Job find_job() const COHORT_REQUIRES(mutex_);
  void open_ahead() COHORT_REQUIRES(mutex_);
  void read_ahead(Source& source, const std::stop_token& stop) COHORT_REQUIRES(mutex_);
  bool read_items(Source& source, std::size_t room, const std::stop_token& stop,
                  std::vector<Item>& items);
  void publish(Source& source, std::vector<Item> items) COHORT_REQUIRES(mutex_);

  /// Reads an argument and opens its dataset; null at the end of the input.
  SourcePtr open_source();
  void pause();  ///< The threads do nothing until resume.
  void resume();

  const OpenDataset open_dataset_;
  const std::unique_ptr<ElementStream> input_;  ///< Of whoever opens.
  const int cycle_length_;
  const int fixed_;                          ///< Threads without a tuner.
  const std::unique_ptr<StageTuner> tuner_;  ///< Null: their number is fixed.
  const std::shared_ptr<Pass> pass_;
  Stage* const stage_;  ///< Owned by pass_; null without a report.

  base::Mutex mutex_;
  std::condition_variable_any ready_;  ///< For the reader.
  std::condition_variable_any work_;   ///< For the threads.
  InterleaveTurns turns_
      COHORT_GUARDED_BY(mutex_);  ///< But a busy source's stream is its thread's.
  int64_t index_ = 0;             ///< Arguments read; whoever opens.
  std::size_t ahead_ COHORT_GUARDED_BY(mutex_);
  bool ahead_known_ COHORT_GUARDED_BY(mutex_) = false;
  std::size_t spare_ COHORT_GUARDED_BY(mutex_) =
      0;                                    ///< Datasets that are opened before their turn is free.
  int busy_ COHORT_GUARDED_BY(mutex_) = 0;  ///< Threads with a job.
  bool opening_ COHORT_GUARDED_BY(mutex_) = false;
  bool paused_ COHORT_GUARDED_BY(mutex_) = false;
  /// Null while all is well; what a thread could not hand over.
  std::exception_ptr broken_ COHORT_GUARDED_BY(mutex_);
  int threads_waiting_ COHORT_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> reader_waits_{false};

  // The reader's.
  int threads_ = 1;
  bool quiet_ = false;

  WorkerSet workers_;  ///< Last: joined before the rest goes.
};

bool InterleaveStream::next(Element& out) {
  start();
  std::chrono::nanoseconds waited{0};
  bool more = false;
  if (is_quiet()) {
    StageTuner::CallTimer timer(tuner_.get());
    more = next_here(out);
  } else {
    more = next_of_threads(out, waited);
  }
  if (more && tuner_ != nullptr) use(tuner_->reader_got_one(waited));
  return more;
}

void InterleaveStream::start() {
  if (tuner_ == nullptr) use(fixed_);
}

void InterleaveStream::use(int threads) {
  if (threads == threads_) return;
  threads_ = threads;
  quiet_ = false;
  {
    const base::MutexLock lock(mutex_);
    spare_ = static_cast<std::size_t>(std::min(threads, cycle_length_));
  }
  workers_.resize(threads > 1 ? static_cast<std::size_t>(threads) : 0);
}

/// True when all is the reader's: no threads, also none that end what they do.
bool InterleaveStream::is_quiet() {
  if (quiet_ || !workers_.empty()) return quiet_;
  const base::MutexLock lock(mutex_);
  reader_waits_ = true;
  ready_.wait(mutex_, pass_->stop(),
              [&]() COHORT_REQUIRES(mutex_) { return busy_ == 0 || broken_ != nullptr; });
  reader_waits_ = false;
  if (broken_) std::rethrow_exception(broken_);
  if (busy_ > 0) pass_->check();
  quiet_ = true;
  return true;
}

// --- Without threads -----------------------------------------------------------------------------

bool InterleaveStream::next_here(Element& out) {
  while (true) {
    SourcePtr finished;
    switch (turns_.step(finished)) {
      case Step::kElement: {
        Item item = turns_.take_item();  // Of a position that threads left.
        if (item.error) std::rethrow_exception(item.error);
        out = std::move(item.element);
        return true;
      }
      case Step::kWait:
        if (Source* const source = turns_.current(); source == nullptr) {
          turns_.add(open_source());
        } else if (source->stream->next(out)) {
          turns_.count_element();
          return true;
        } else {
          source->ended = true;
        }
        break;
      case Step::kAgain:
      case Step::kChanged:
        break;
      case Step::kEnd:
        return false;
    }
  }
}

SourcePtr InterleaveStream::open_source() {
  auto source = std::make_unique<Source>();
  ConsumerWaitScope consumer_wait(tuner_ ? tuner_->consumer_wait() : current_consumer_wait());
  try {
    if (!input_->next(source->argument)) return nullptr;
    source->index = index_++;
    source->stream = open_stream<Element>(*open_dataset_(source->argument, source->index));
    source->stream->start();
  } catch (...) {
    source->no_source = std::current_exception();
  }
  return source;
}

// --- The reader beside threads -------------------------------------------------------------------

bool InterleaveStream::next_of_threads(Element& out, std::chrono::nanoseconds& waited) {
  base::MutexLock lock(mutex_);
  while (true) {
    if (broken_) std::rethrow_exception(broken_);
    SourcePtr finished;
    switch (turns_.step(finished)) {
      case Step::kElement: {
        bool wake = false;
        Item item = take_item(wake);
        lock.unlock();
        if (wake) work_.notify_one();
        if (item.error) std::rethrow_exception(item.error);
        out = std::move(item.element);
        return true;
      }
      case Step::kAgain:
        break;
      case Step::kChanged:
        work_.notify_one();
        break;
      case Step::kWait:
        waited += wait_for_something();
        break;
      case Step::kEnd:
        return false;
    }
    if (finished == nullptr) continue;
    const base::MutexUnlock unlocked(mutex_);  // Closing a dataset may take its time.
    finished.reset();
  }
}

std::chrono::nanoseconds InterleaveStream::wait_for_something() {
  WorkTimer timer(stage_, WorkTimer::kWait);
  const auto begin = std::chrono::steady_clock::now();
  // After a dataset that could not be opened, too.
  if (threads_waiting_ > 0 && find_job().found()) work_.notify_one();
  reader_waits_ = true;
  const auto arrived = [&]() COHORT_REQUIRES(mutex_) {
    return broken_ != nullptr || turns_.has_something();
  };
  ready_.wait(mutex_, pass_->stop(), arrived);
  reader_waits_ = false;
  if (!arrived()) pass_->check();
  return std::chrono::steady_clock::now() - begin;
}

Item InterleaveStream::take_item(bool& wake) {
  const Source& source = *turns_.current();
  if (stage_ != nullptr) stage_->note_buffer(source.items.size(), ahead_);
  Item item = turns_.take_item();
  wake = threads_waiting_ > 0 && InterleaveTurns::wants_items(source, ahead_);
  return item;
}

// --- Background threads --------------------------------------------------------------------------

void InterleaveStream::work(const std::stop_token& stop) {
  const base::MutexLock lock(mutex_);
  while (true) {
    InterleaveTurns::Job job;
    ++threads_waiting_;
    work_.wait(mutex_, stop, [&]() COHORT_REQUIRES(mutex_) {
      job = find_job();
      return job.found();
    });
    --threads_waiting_;
    if (stop.stop_requested() || pass_->stop().stop_requested()) return;
    ++busy_;
    if (job.open) {
      open_ahead();
    } else {
      read_ahead(*job.source, stop);
    }
    --busy_;
    if (reader_waits_ && (busy_ == 0 || turns_.has_something())) ready_.notify_one();
    if (threads_waiting_ > 0 && find_job().found()) work_.notify_one();
  }
}

/// A dataset may be busy for ever: whoever reads gets the error, now and later.
void InterleaveStream::fail(std::exception_ptr error) {
  const base::MutexLock lock(mutex_);
  broken_ = std::move(error);
  ready_.notify_all();
  work_.notify_all();
}

InterleaveTurns::Job InterleaveStream::find_job() const {
  if (paused_ || broken_) return {};
  return turns_.find_job(ahead_, spare_, !opening_);
}

void InterleaveStream::open_ahead() {
  opening_ = true;
  SourcePtr source;
  {
    const base::MutexUnlock unlocked(mutex_);
    WorkTimer timer(stage_, WorkTimer::kOwn);
    StageTuner::CallTimer call_timer(tuner_.get());
    source = open_source();
  }
  if (source == nullptr || !pass_->ended_by(source->no_source)) turns_.add(std::move(source));
  // Last: a dataset that add had no memory for is lost, and nobody may open the one behind it.
  opening_ = false;
}

void InterleaveStream::read_ahead(Source& source, const std::stop_token& stop) {
  source.busy = true;
  const std::size_t room = ahead_ - source.items.size();
  std::vector<Item> items;
  bool more = true;
  {
    const base::MutexUnlock unlocked(mutex_);
    more = read_items(source, room, stop, items);
  }
  publish(source, std::move(items));
  // Last: items that publish had no memory for are lost, and nobody may read those behind them.
  source.busy = false;
  source.ended = !more;
}

/// At most `room` of them; false at the end of the source.
bool InterleaveStream::read_items(Source& source, std::size_t room, const std::stop_token& stop,
                                  std::vector<Item>& items) {
  bool more = true;
  bool cancelled = false;
  // One at a time while the reader waits: it may be for this one.
  do {
    Item item;
    try {
      StageTuner::CallTimer timer(tuner_.get());
      more = source.stream->next(item.element);
      if (more) item.element = item.element.materialize();
    } catch (...) {
      item.error = std::current_exception();
      cancelled = pass_->ended_by(item.error);
    }
    if (more && !cancelled) items.push_back(std::move(item));
  } while (more && !cancelled && --room > 0 && !reader_waits_ && !stop.stop_requested());
  return more;
}

void InterleaveStream::publish(Source& source, std::vector<Item> items) {
  if (!ahead_known_ && !items.empty() && !items[0].error) {
    ahead_known_ = true;
    const int64_t bytes = element_bytes(items[0].element) * cycle_length_;
    const auto most = static_cast<int64_t>(ahead_);
    ahead_ = static_cast<std::size_t>(
        std::clamp(kBytesAhead / std::max<int64_t>(1, bytes), kLeastAhead, most));
  }
  for (Item& item : items) source.items.push_back(std::move(item));
}

// --- Positions -----------------------------------------------------------------------------------

void InterleaveStream::pause() {
  const base::MutexLock lock(mutex_);
  paused_ = true;
  reader_waits_ = true;
  ready_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) { return busy_ == 0 || broken_ != nullptr; });
  reader_waits_ = false;
  if (broken_) std::rethrow_exception(broken_);
}

void InterleaveStream::resume() {
  {
    const base::MutexLock lock(mutex_);
    paused_ = false;
  }
  work_.notify_all();
}

void InterleaveStream::save(StateWriter& out) {
  const base::ScopeExit go_on([&] { resume(); });
  pause();
  out.put_int(index_);
  turns_.save(out);
  input_->save(out);
}

void InterleaveStream::restore(StateReader& in) {
  index_ = in.get_int();
  turns_.restore(in, [&](StateReader& from) { return restore_source(from, open_dataset_); });
  input_->restore(in);
}

}  // namespace

std::unique_ptr<ElementStream> make_interleave_stream(OpenDataset open,
                                                      std::unique_ptr<ElementStream> input,
                                                      InterleaveSetting setting) {
  return std::make_unique<InterleaveStream>(std::move(open), std::move(input), std::move(setting));
}

}  // namespace cohort::internal::data
