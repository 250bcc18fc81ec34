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

class CacheWriteStream final : public ElementStream {
 public:
  CacheWriteStream(std::unique_ptr<ElementStream> input, std::shared_ptr<CacheMemory> memory)
      : input_(std::move(input)), memory_(std::move(memory)) {}

  bool next(Element& out) override {
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

 private:
  std::unique_ptr<ElementStream> input_;
  const std::shared_ptr<CacheMemory> memory_;
  std::vector<Element> seen_;
  bool complete_ = true;
};

class CacheReadStream final : public ElementStream {
 public:
  explicit CacheReadStream(CacheMemory::Elements elements) : elements_(std::move(elements)) {}
  bool next(Element& out) override {
    if (position_ == elements_->size()) return false;
    out = (*elements_)[position_++];
    return true;
  }

 private:
  const CacheMemory::Elements elements_;
  std::size_t position_ = 0;
};

class CacheNode final : public DatasetNode {
 public:
  explicit CacheNode(const NodePtr& input) : DatasetNode("cache", input->spec(), {input}) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    if (auto elements = memory_->get()) {
      return std::make_unique<CacheReadStream>(std::move(elements));
    }
    return std::make_unique<CacheWriteStream>(input().make_stream(), memory_);
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

 private:
  const std::shared_ptr<CacheMemory> memory_ = std::make_shared<CacheMemory>();
};

/// A thread reads ahead into a bounded queue. An error takes its place among the elements.
class PrefetchStream final : public ElementStream {
 public:
  PrefetchStream(std::unique_ptr<ElementStream> input, std::size_t capacity)
      : input_(std::move(input)),
        capacity_(capacity),
        thread_("prefetch", [this](const std::stop_token& stop) { fill(stop); }) {}

  bool next(Element& out) override {
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

 private:
  struct Item {
    Element element;
    std::exception_ptr error;
  };

  void fill(const std::stop_token& stop) {
    while (true) {
      Item item;
      bool more = true;
      try {
        more = input_->next(item.element);
        if (more) item.element = item.element.materialize();
      } catch (...) {
        item.error = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      if (more) {
        thread_waits_ = true;
        emptied_.wait(lock, stop, [&] { return queue_.size() < capacity_; });
        thread_waits_ = false;
        if (stop.stop_requested()) return;
        queue_.push_back(std::move(item));
      } else {
        ended_ = true;
      }
      const bool wake = reader_waits_;
      lock.unlock();
      if (wake) filled_.notify_one();
      if (!more) return;
    }
  }

  const std::unique_ptr<ElementStream> input_;  ///< The thread's alone.
  const std::size_t capacity_;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable_any emptied_;
  // Guarded by mutex_. Waking costs a system call: nobody is woken who does not wait.
  std::deque<Item> queue_;
  bool ended_ = false;
  bool reader_waits_ = false;
  bool thread_waits_ = false;

  TaskThread thread_;  ///< Last: joined before the rest goes.
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
