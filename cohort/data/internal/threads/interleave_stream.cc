// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/threads/interleave_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/base/scope_exit.h"
#include "cohort/data/internal/element_bytes.h"
#include "cohort/data/internal/pass.h"
#include "cohort/data/internal/threads/interleave_source.h"
#include "cohort/data/internal/threads/worker_set.h"

namespace cohort::internal {
namespace {

using Item = InterleaveSource::Item;
using Source = InterleaveSource;
using SourcePtr = std::unique_ptr<Source>;

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
        block_length_(setting.block_length),
        ordered_(setting.ordered),
        fixed_(setting.threads),
        tuner_(std::move(setting.tuner)),
        pass_(Pass::current()),
        stage_(current_stage()),
        turns_(static_cast<std::size_t>(cycle_length_)),
        ahead_(static_cast<std::size_t>(std::max(kMostAhead, block_length_))),
        workers_(
            "interleave", [this](const std::stop_token& stop) { work(stop); },
            tuner_ ? tuner_->pressure() : current_pressure()) {}

  ~InterleaveStream() override { workers_.resize(0); }

  bool next(Element& out) override;
  void start() override;
  void save(StateWriter& out) override;
  void restore(StateReader& in) override;

 private:
  // On the thread that reads.
  /// 1: the reader reads; more: so many other threads.
  void use(int threads);
  bool is_quiet();
  bool next_here(Element& out);
  bool next_of_threads(Element& out, std::chrono::nanoseconds& waited);
  /// What is to be done at the current place before there is an element; true if there is one.
  enum class Step { kElement, kAgain, kWait, kEnd };
  Step step(SourcePtr& finished);
  void take_item(Element& out, std::unique_lock<std::mutex>& lock);
  void take_future();
  void free_turn(SourcePtr& turn);
  void advance();
  std::chrono::nanoseconds wait_for_something(std::unique_lock<std::mutex>& lock);
  /// Without an order: goes to the next turn at which there is something to do.
  bool move_on();
  bool has_something(std::size_t turn) const;
  bool reader_has_something() const;

  // On background threads.
  void work(const std::stop_token& stop);
  struct Job {
    Source* source = nullptr;  ///< To read from.
    bool open = false;         ///< A new one.
    bool found() const { return source != nullptr || open; }
  };
  Job find_job() const;
  bool wants_items(const Source& source) const;
  void open_ahead(std::unique_lock<std::mutex>& lock);
  void read_ahead(Source& source, const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
  void publish(Source& source, std::vector<Item> items);

  /// Reads an argument and opens its dataset; null at the end of the input.
  SourcePtr open_source();
  void pause();  ///< The threads do nothing until resume.
  void resume();

  const OpenDataset open_dataset_;
  const std::unique_ptr<ElementStream> input_;  ///< Of whoever opens.
  const int cycle_length_;
  const int64_t block_length_;
  const bool ordered_;
  const int fixed_;                          ///< Threads without a tuner.
  const std::unique_ptr<StageTuner> tuner_;  ///< Null: their number is fixed.
  const std::shared_ptr<Pass> pass_;
  Stage* const stage_;  ///< Owned by pass_; null without a report.

  std::mutex mutex_;
  std::condition_variable_any ready_;  ///< For the reader.
  std::condition_variable_any work_;   ///< For the threads.
  // Guarded by mutex_ once there are threads. A busy source's stream is its thread's.
  std::vector<SourcePtr> turns_;  ///< Null: free for the next.
  Ring<SourcePtr> futures_;       ///< Opened in advance.
  std::size_t current_ = 0;
  int64_t taken_ = 0;     ///< Of the current block.
  std::size_t open_ = 0;  ///< Turns that are not free.
  int64_t index_ = 0;     ///< Arguments read; whoever opens.
  bool input_ended_ = false;
  std::size_t ahead_;
  bool ahead_known_ = false;
  std::size_t spare_ = 0;  ///< Datasets that are opened before their turn is free.
  int busy_ = 0;           ///< Threads with a job.
  bool opening_ = false;
  bool paused_ = false;
  int threads_waiting_ = 0;
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
    std::lock_guard lock(mutex_);
    spare_ = static_cast<std::size_t>(std::min(threads, cycle_length_));
  }
  workers_.resize(threads > 1 ? static_cast<std::size_t>(threads) : 0);
}

/// True when all is the reader's: no threads, also none that end what they do.
bool InterleaveStream::is_quiet() {
  if (quiet_ || !workers_.empty()) return quiet_;
  std::unique_lock lock(mutex_);
  reader_waits_ = true;
  ready_.wait(lock, pass_->stop(), [&] { return busy_ == 0; });
  reader_waits_ = false;
  if (busy_ > 0) pass_->check();
  quiet_ = true;
  return true;
}

void InterleaveStream::advance() {
  current_ = current_ + 1 == turns_.size() ? 0 : current_ + 1;
  taken_ = 0;
}

void InterleaveStream::free_turn(SourcePtr& turn) {
  turn.reset();
  --open_;
  advance();
}

void InterleaveStream::take_future() {
  SourcePtr source = futures_.pop_front();
  if (source->no_source) std::rethrow_exception(std::exchange(source->no_source, nullptr));
  turns_[current_] = std::move(source);
  ++open_;
}

// --- Without threads -----------------------------------------------------------------------------

bool InterleaveStream::next_here(Element& out) {
  while (!input_ended_ || open_ > 0 || !futures_.empty()) {
    SourcePtr& turn = turns_[current_];
    if (turn != nullptr) {
      if (!turn->items.empty()) {
        Item item = turn->items.pop_front();  // Of a position that threads left.
        if (item.error) std::rethrow_exception(item.error);
        out = std::move(item.element);
      } else if (turn->ended || !turn->stream->next(out)) {
        free_turn(turn);
        continue;
      }
      if (++taken_ == block_length_) advance();
      return true;
    }
    if (futures_.empty() && !input_ended_) {
      SourcePtr source = open_source();
      input_ended_ = source == nullptr;
      if (source != nullptr) futures_.push_back(std::move(source));
    }
    if (futures_.empty()) {
      advance();
    } else {
      take_future();
    }
  }
  return false;
}

SourcePtr InterleaveStream::open_source() {
  auto source = std::make_unique<Source>();
  PressureScope pressure(tuner_ ? tuner_->pressure() : current_pressure());
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
  std::unique_lock lock(mutex_);
  while (true) {
    SourcePtr finished;
    switch (step(finished)) {
      case Step::kElement:
        take_item(out, lock);
        return true;
      case Step::kAgain:
        break;
      case Step::kWait:
        waited += wait_for_something(lock);
        break;
      case Step::kEnd:
        return false;
    }
    if (finished == nullptr) continue;
    lock.unlock();  // Closing a dataset may take its time.
    finished.reset();
    lock.lock();
  }
}

InterleaveStream::Step InterleaveStream::step(SourcePtr& finished) {
  SourcePtr& turn = turns_[current_];
  if (turn != nullptr) {
    if (!turn->items.empty()) return Step::kElement;
    if (turn->ended) {
      finished = std::move(turn);
      free_turn(turn);
      work_.notify_one();
      return Step::kAgain;
    }
  } else if (!futures_.empty()) {
    work_.notify_one();
    take_future();
    return Step::kAgain;
  } else if (input_ended_) {
    if (open_ == 0) return Step::kEnd;
    advance();
    return Step::kAgain;
  }
  return !ordered_ && move_on() ? Step::kAgain : Step::kWait;
}

bool InterleaveStream::has_something(std::size_t turn) const {
  const SourcePtr& source = turns_[turn];
  if (source == nullptr) return !futures_.empty() || input_ended_;
  return !source->items.empty() || source->ended;
}

bool InterleaveStream::move_on() {
  for (std::size_t i = 1; i < turns_.size(); ++i) {
    const std::size_t turn = (current_ + i) % turns_.size();
    if (turns_[turn] == nullptr && futures_.empty()) continue;
    if (!has_something(turn)) continue;
    current_ = turn;
    taken_ = 0;
    return true;
  }
  return false;
}

bool InterleaveStream::reader_has_something() const {
  if (has_something(current_)) return true;
  if (ordered_) return false;
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) {
    if (turns_[turn] == nullptr && futures_.empty()) continue;
    if (has_something(turn)) return true;
  }
  return false;
}

std::chrono::nanoseconds InterleaveStream::wait_for_something(std::unique_lock<std::mutex>& lock) {
  WorkTimer timer(stage_, WorkTimer::kWait);
  const auto begin = std::chrono::steady_clock::now();
  reader_waits_ = true;
  ready_.wait(lock, pass_->stop(), [&] { return reader_has_something(); });
  reader_waits_ = false;
  if (!reader_has_something()) pass_->check();
  return std::chrono::steady_clock::now() - begin;
}

void InterleaveStream::take_item(Element& out, std::unique_lock<std::mutex>& lock) {
  Source& source = *turns_[current_];
  if (stage_ != nullptr) stage_->note_buffer(source.items.size(), ahead_);
  Item item = source.items.pop_front();
  // Half of what may be ahead is gone: worth waking a thread for.
  const bool wake = threads_waiting_ > 0 && wants_items(source);
  if (!item.error && ++taken_ == block_length_) advance();
  lock.unlock();
  if (wake) work_.notify_one();
  if (item.error) std::rethrow_exception(item.error);
  out = std::move(item.element);
}

// --- Background threads --------------------------------------------------------------------------

void InterleaveStream::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    Job job;
    ++threads_waiting_;
    work_.wait(lock, stop, [&] {
      job = find_job();
      return job.found();
    });
    --threads_waiting_;
    if (stop.stop_requested()) return;
    ++busy_;
    if (job.open) {
      open_ahead(lock);
    } else {
      read_ahead(*job.source, stop, lock);
    }
    --busy_;
    if (reader_waits_ && (busy_ == 0 || reader_has_something())) ready_.notify_one();
    if (threads_waiting_ > 0 && find_job().found()) work_.notify_one();
  }
}

bool InterleaveStream::wants_items(const Source& source) const {
  return !source.busy && !source.ended && !source.no_source && 2 * source.items.size() <= ahead_;
}

InterleaveStream::Job InterleaveStream::find_job() const {
  if (paused_) return {};
  // First what the reader waits for, then what it comes to next, then what it opens next.
  const SourcePtr& current = turns_[current_];
  if (current != nullptr && wants_items(*current)) return {.source = current.get()};
  const bool can_open = !opening_ && !input_ended_;
  const std::size_t free = turns_.size() - open_;
  if (can_open && futures_.size() < free) return {.open = true};
  for (std::size_t i = 1; i < turns_.size(); ++i) {
    const SourcePtr& turn = turns_[(current_ + i) % turns_.size()];
    if (turn != nullptr && wants_items(*turn)) return {.source = turn.get()};
  }
  for (std::size_t i = 0; i < futures_.size(); ++i) {
    if (wants_items(*futures_[i])) return {.source = futures_[i].get()};
  }
  return {.open = can_open && futures_.size() < free + spare_};
}

void InterleaveStream::open_ahead(std::unique_lock<std::mutex>& lock) {
  opening_ = true;
  lock.unlock();
  SourcePtr source;
  {
    WorkTimer timer(stage_, WorkTimer::kOwn);
    StageTuner::CallTimer call_timer(tuner_.get());
    source = open_source();
  }
  lock.lock();
  opening_ = false;
  if (source == nullptr) {
    input_ended_ = true;
  } else {
    futures_.push_back(std::move(source));
  }
}

void InterleaveStream::read_ahead(Source& source, const std::stop_token& stop,
                                  std::unique_lock<std::mutex>& lock) {
  source.busy = true;
  std::size_t room = ahead_ - source.items.size();
  lock.unlock();
  std::vector<Item> items;
  bool more = true;
  // One at a time while the reader waits: it may be for this one.
  do {
    Item item;
    try {
      StageTuner::CallTimer timer(tuner_.get());
      more = source.stream->next(item.element);
      if (more) item.element = item.element.materialize();
    } catch (...) {
      item.error = std::current_exception();
    }
    if (more) items.push_back(std::move(item));
  } while (more && --room > 0 && !reader_waits_ && !stop.stop_requested());
  lock.lock();
  source.busy = false;
  source.ended = !more;
  publish(source, std::move(items));
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
  std::unique_lock lock(mutex_);
  paused_ = true;
  reader_waits_ = true;
  ready_.wait(lock, [&] { return busy_ == 0; });
  reader_waits_ = false;
}

void InterleaveStream::resume() {
  {
    std::lock_guard lock(mutex_);
    paused_ = false;
  }
  work_.notify_all();
}

void InterleaveStream::save(StateWriter& out) {
  pause();
  const ScopeExit go_on([&] { resume(); });
  out.put_int(static_cast<int64_t>(current_));
  out.put_int(taken_);
  out.put_int(index_);
  out.put_int(input_ended_ ? 1 : 0);
  for (const SourcePtr& turn : turns_) {
    out.put_int(turn != nullptr ? 1 : 0);
    if (turn != nullptr) save_source(out, *turn);
  }
  out.put_int(static_cast<int64_t>(futures_.size()));
  for (std::size_t i = 0; i < futures_.size(); ++i) save_source(out, *futures_[i]);
  input_->save(out);
}

void InterleaveStream::restore(StateReader& in) {
  current_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(turns_.size()) - 1));
  taken_ = in.get_int();
  index_ = in.get_int();
  input_ended_ = in.get_flag();
  for (SourcePtr& turn : turns_) {
    if (!in.get_flag()) continue;
    turn = restore_source(in, open_dataset_);
    ++open_;
  }
  for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
    futures_.push_back(restore_source(in, open_dataset_));
  }
  input_->restore(in);
}

}  // namespace

std::unique_ptr<ElementStream> make_interleave_stream(OpenDataset open,
                                                      std::unique_ptr<ElementStream> input,
                                                      InterleaveSetting setting) {
  return std::make_unique<InterleaveStream>(std::move(open), std::move(input), std::move(setting));
}

}  // namespace cohort::internal
