// SPDX-License-Identifier: Apache-2.0
//
// cache, prefetch and with_options: the elements stay as they are.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "cohort/base/check.h"
#include "cohort/data/internal/nodes.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal {
namespace {

/// Elements of one complete pass, kept for all later ones. Threads: thread-safe.
class CacheMemory {
 public:
  using Elements = std::shared_ptr<const std::vector<Element>>;

  Elements get() const {
    std::lock_guard lock(mutex_);
    return elements_;
  }
  /// The first complete pass wins.
  void publish(std::vector<Element> elements) {
    std::lock_guard lock(mutex_);
    if (!elements_) elements_ = std::make_shared<const std::vector<Element>>(std::move(elements));
  }

 private:
  mutable std::mutex mutex_;
  Elements elements_;
};

/// Fills the cache, or reads what another pass has filled by the time this one is made.
class CacheStream final : public ElementStream {
 public:
  CacheStream(NodePtr node, std::shared_ptr<CacheMemory> memory)
      : node_(std::move(node)), memory_(std::move(memory)), cached_(memory_->get()) {
    if (!cached_) input_ = node_->inputs().front()->make_stream();
  }

  bool next(Element& out) override {
    if (cached_) {
      if (position_ == cached_->size()) return false;
      out = (*cached_)[position_++];
      return true;
    }
    if (input_ == nullptr) return false;
    bool more = false;
    try {
      more = input_->next(out);
      if (more) out = out.materialize();
    } catch (...) {
      complete_ = false;  // An element is missing: this pass is no cache.
      throw;
    }
    if (more) {
      seen_.push_back(out);
      return true;
    }
    if (complete_) memory_->publish(std::move(seen_));
    input_.reset();
    return false;
  }

  /// The elements are part of the position: another process has no cache yet.
  void save(StateWriter& out) override {
    const std::vector<Element>& elements = cached_ ? *cached_ : seen_;
    out.put_int(cached_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(elements.size()));
    for (const Element& element : elements) out.put_element(element);
    if (cached_) return out.put_int(static_cast<int64_t>(position_));
    out.put_int(complete_ ? 1 : 0);
    out.put_int(input_ != nullptr ? 1 : 0);
    if (input_ != nullptr) input_->save(out);
  }
  void restore(StateReader& in) override {
    const bool cached = in.get_flag();
    std::vector<Element> elements(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (Element& element : elements) element = in.get_element();
    if (cached) {
      position_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(elements.size())));
      memory_->publish(std::move(elements));
      cached_ = memory_->get();
      position_ = std::min(position_, cached_->size());
      input_.reset();
      return;
    }
    cached_.reset();
    seen_ = std::move(elements);
    complete_ = in.get_flag();
    input_.reset();
    if (!in.get_flag()) return;
    input_ = node_->inputs().front()->make_stream();
    input_->restore(in);
  }

 private:
  const NodePtr node_;
  const std::shared_ptr<CacheMemory> memory_;
  CacheMemory::Elements cached_;          ///< Null: this pass fills.
  std::size_t position_ = 0;              ///< In cached_.
  std::unique_ptr<ElementStream> input_;  ///< Null after its end.
  std::vector<Element> seen_;
  bool complete_ = true;
};

class CacheNode final : public DatasetNode {
 public:
  explicit CacheNode(const NodePtr& input) : DatasetNode("cache", input->spec(), {input}) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CacheStream>(shared_from_this(), memory_);
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

 private:
  const std::shared_ptr<CacheMemory> memory_ = std::make_shared<CacheMemory>();
};

/// A thread reads ahead into a bounded queue. An error takes its place among the elements.
class PrefetchStream final : public ElementStream {
 public:
  PrefetchStream(std::unique_ptr<ElementStream> input, std::size_t capacity)
      : input_(std::move(input)), capacity_(capacity) {}

  bool next(Element& out) override {
    start();
    std::unique_lock lock(mutex_);
    reader_waits_ = true;
    filled_.wait(lock, [&] { return ended_ || !queue_.empty(); });
    reader_waits_ = false;
    if (queue_.empty()) return false;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool wake = thread_waits_;
    lock.unlock();
    if (wake) emptied_.notify_one();
    if (item.error) std::rethrow_exception(item.error);
    out = std::move(item.element);
    return true;
  }

  void start() override {
    if (thread_) return;
    thread_ = std::make_unique<TaskThread>("prefetch",
                                           [this](const std::stop_token& stop) { fill(stop); });
  }

  void save(StateWriter& out) override {
    std::unique_lock lock(mutex_);
    ++pauses_;
    filled_.wait(lock, [&] { return !reading_; });
    // The thread stays out of input_ while it is paused.
    out.put_int(ended_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(queue_.size()));
    for (const Item& item : queue_) {
      out.put_error(item.error);
      if (!item.error) out.put_element(item.element);
    }
    input_->save(out);
    --pauses_;
    lock.unlock();
    emptied_.notify_one();
  }
  void restore(StateReader& in) override {
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
  struct Item {
    Element element;
    std::exception_ptr error;
  };

  void fill(const std::stop_token& stop) {
    while (wait_for_room(stop)) {
      Item item;
      bool more = true;
      try {
        more = input_->next(item.element);
        if (more) item.element = item.element.materialize();
      } catch (...) {
        item.error = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      reading_ = false;
      if (more) {
        queue_.push_back(std::move(item));
      } else {
        ended_ = true;
      }
      const bool wake = reader_waits_ || pauses_ > 0;
      lock.unlock();
      if (wake) filled_.notify_one();
      if (!more) return;
    }
  }

  /// False if the thread is to end, else the input is the thread's until reading_ is false.
  bool wait_for_room(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (ended_) return false;
    thread_waits_ = true;
    emptied_.wait(lock, stop, [&] { return queue_.size() < capacity_ && pauses_ == 0; });
    thread_waits_ = false;
    if (stop.stop_requested()) return false;
    reading_ = true;
    return true;
  }

  const std::unique_ptr<ElementStream> input_;  ///< The thread's while reading_.
  const std::size_t capacity_;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable_any emptied_;
  // Guarded by mutex_. Waking costs a system call: nobody is woken who does not wait.
  std::deque<Item> queue_;
  bool ended_ = false;
  bool reading_ = false;
  bool reader_waits_ = false;
  bool thread_waits_ = false;
  int pauses_ = 0;  ///< Savers that want the thread to rest.

  std::unique_ptr<TaskThread> thread_;  ///< Last: joined before the rest goes.
};

class PrefetchNode final : public DatasetNode {
 public:
  PrefetchNode(const NodePtr& input, std::size_t capacity)
      : DatasetNode("prefetch", input->spec(), {input}), capacity_(capacity) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<PrefetchStream>(input().make_stream(), capacity_);
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

 private:
  const std::size_t capacity_;
};

class OptionsNode final : public DatasetNode {
 public:
  OptionsNode(const NodePtr& input, DataOptions options)
      : DatasetNode("with_options", input->spec(), {input}), options_(options) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override { return input().make_stream(); }
  std::shared_ptr<const RowSource> row_source() const override { return input().row_source(); }
  std::unique_ptr<RowStream> make_row_stream() const override { return input().make_row_stream(); }
  int64_t batch_rows() const override { return input().batch_rows(); }
  DataOptions options() const override { return options_; }

 private:
  const DataOptions options_;
};

}  // namespace

NodePtr make_cache_node(NodePtr input) { return std::make_shared<CacheNode>(input); }

NodePtr make_prefetch_node(NodePtr input, int64_t buffer_size) {
  COHORT_CHECK_ARG(buffer_size >= 0 || buffer_size == kAutotune,
                   "[dataset.prefetch] expected a size of at least 0 or kAutotune, got ",
                   buffer_size);
  if (buffer_size == 0) return input;
  constexpr std::size_t kDefaultCapacity = 2;
  const auto capacity =
      buffer_size == kAutotune ? kDefaultCapacity : static_cast<std::size_t>(buffer_size);
  return std::make_shared<PrefetchNode>(input, capacity);
}

NodePtr make_options_node(NodePtr input, DataOptions options) {
  return std::make_shared<OptionsNode>(input, options);
}

}  // namespace cohort::internal
