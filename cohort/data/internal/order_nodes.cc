// SPDX-License-Identifier: Apache-2.0
//
// take, skip, repeat, shard and shuffle. Each stream is written once for elements and for row
// numbers: over rows in memory only numbers move until a batch gathers them.
#include <atomic>

#include "cohort/base/check.h"
#include "cohort/data/internal/nodes.h"
#include "cohort/data/internal/shuffle_random.h"
#include "cohort/data/internal/shuffle_seed.h"

namespace cohort::internal {
namespace {

/// A node whose stream `Derived::make<T>()` makes for T = Element and T = int64_t.
template <class Derived>
class OrderNode : public DatasetNode {
 public:
  OrderNode(std::string operation, const NodePtr& input)
      : DatasetNode(std::move(operation), input->spec(), {input}) {}

  std::shared_ptr<const RowSource> row_source() const final { return input().row_source(); }
  std::unique_ptr<RowStream> make_row_stream() const final {
    return derived().template make<int64_t>();
  }
  std::unique_ptr<ElementStream> make_stream() const final {
    if (auto source = row_source()) return stream_rows(std::move(source), make_row_stream());
    return derived().template make<Element>();
  }
  int64_t batch_rows() const final { return input().batch_rows(); }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

template <class T>
class TakeStream final : public Stream<T> {
 public:
  TakeStream(std::unique_ptr<Stream<T>> input, int64_t count)
      : input_(std::move(input)), left_(count) {}
  bool next(T& out) override {
    if (left_ == 0) return false;
    if (left_ > 0) --left_;
    return input_->next(out);
  }

 private:
  const std::unique_ptr<Stream<T>> input_;
  int64_t left_;  ///< Below 0: all.
};

template <class T>
class SkipStream final : public Stream<T> {
 public:
  SkipStream(std::unique_ptr<Stream<T>> input, int64_t count)
      : input_(std::move(input)), left_(count) {}
  bool next(T& out) override {
    for (; left_ > 0; --left_) {
      if (!input_->next(out)) return false;
    }
    return input_->next(out);
  }

 private:
  const std::unique_ptr<Stream<T>> input_;
  int64_t left_;
};

template <class T>
class ShardStream final : public Stream<T> {
 public:
  ShardStream(std::unique_ptr<Stream<T>> input, int64_t num_shards, int64_t index)
      : input_(std::move(input)), num_shards_(num_shards), skip_(index) {}
  bool next(T& out) override {
    for (; skip_ > 0; --skip_) {
      if (!input_->next(out)) return false;
    }
    skip_ = num_shards_ - 1;
    return input_->next(out);
  }

 private:
  const std::unique_ptr<Stream<T>> input_;
  const int64_t num_shards_;
  int64_t skip_;  ///< Elements of other shards before the next one of ours.
};

template <class T>
class RepeatStream final : public Stream<T> {
 public:
  RepeatStream(NodePtr input, int64_t count) : input_(std::move(input)), left_(count) {}
  bool next(T& out) override {
    while (true) {
      if (pass_ == nullptr) {
        if (left_ == 0) return false;
        if (left_ > 0) --left_;
        pass_ = open_stream<T>(*input_);
        fresh_ = true;
      }
      if (pass_->next(out)) {
        fresh_ = false;
        return true;
      }
      pass_.reset();
      // An empty input repeated for ever is empty, not a loop without end.
      if (fresh_) left_ = 0;
    }
  }

 private:
  const NodePtr input_;
  int64_t left_;  ///< Passes to begin; below 0: no end.
  std::unique_ptr<Stream<T>> pass_;
  bool fresh_ = false;
};

/// A buffer from which a random element leaves and the next one of the input takes its place.
template <class T>
class ShuffleStream final : public Stream<T> {
 public:
  ShuffleStream(std::unique_ptr<Stream<T>> input, int64_t buffer_size, ShuffleRandom random)
      : input_(std::move(input)),
        buffer_size_(static_cast<std::size_t>(buffer_size)),
        random_(random) {}

  bool next(T& out) override {
    T incoming{};
    while (!input_ended_ && buffer_.size() < buffer_size_) {
      if (take_input(incoming)) buffer_.push_back(std::move(incoming));
    }
    if (buffer_.empty()) return false;
    T& chosen = buffer_[random_.below(buffer_.size())];
    out = std::move(chosen);
    chosen = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }

 private:
  bool take_input(T& out) {
    if (!input_->next(out)) input_ended_ = true;
    return !input_ended_;
  }

  const std::unique_ptr<Stream<T>> input_;
  const std::size_t buffer_size_;
  ShuffleRandom random_;
  std::vector<T> buffer_;
  bool input_ended_ = false;
};

class TakeNode final : public OrderNode<TakeNode> {
 public:
  TakeNode(const NodePtr& input, int64_t count) : OrderNode("take", input), count_(count) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (count_ < 0 || n == kUnknownCardinality) return count_ == 0 ? 0 : n;
    return n == kInfiniteCardinality ? count_ : std::min(n, count_);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<TakeStream<T>>(open_stream<T>(input()), count_);
  }

 private:
  const int64_t count_;
};

class SkipNode final : public OrderNode<SkipNode> {
 public:
  SkipNode(const NodePtr& input, int64_t count) : OrderNode("skip", input), count_(count) {}
  int64_t cardinality() const override {
    if (count_ < 0) return 0;
    const int64_t n = input().cardinality();
    return n < 0 ? n : std::max<int64_t>(0, n - count_);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    // Skipping everything of an input without end must not read it.
    if (count_ < 0) return std::make_unique<TakeStream<T>>(open_stream<T>(input()), 0);
    return std::make_unique<SkipStream<T>>(open_stream<T>(input()), count_);
  }

 private:
  const int64_t count_;
};

class RepeatNode final : public OrderNode<RepeatNode> {
 public:
  RepeatNode(const NodePtr& input, int64_t count) : OrderNode("repeat", input), count_(count) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (count_ == 0 || n == 0) return 0;
    if (count_ < 0) return n == kUnknownCardinality ? n : kInfiniteCardinality;
    return n < 0 ? n : saturated_product(n, count_);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<RepeatStream<T>>(inputs().front(), count_);
  }

 private:
  const int64_t count_;
};

class ShardNode final : public OrderNode<ShardNode> {
 public:
  ShardNode(const NodePtr& input, int64_t num_shards, int64_t index)
      : OrderNode("shard", input), num_shards_(num_shards), index_(index) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    return n < 0 ? n : n / num_shards_ + (index_ < n % num_shards_ ? 1 : 0);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<ShardStream<T>>(open_stream<T>(input()), num_shards_, index_);
  }

 private:
  const int64_t num_shards_;
  const int64_t index_;
};

class ShuffleNode final : public OrderNode<ShuffleNode> {
 public:
  ShuffleNode(const NodePtr& input, int64_t buffer_size, const ShuffleOptions& options)
      : OrderNode("shuffle", input),
        buffer_size_(buffer_size),
        seed_(options.seed ? *options.seed : default_shuffle_seed()),
        reshuffle_(options.reshuffle_each_iteration) {}
  int64_t cardinality() const override { return input().cardinality(); }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    const uint64_t pass = reshuffle_ ? passes_.fetch_add(1, std::memory_order_relaxed) : 0;
    return std::make_unique<ShuffleStream<T>>(open_stream<T>(input()), buffer_size_,
                                              ShuffleRandom(seed_, pass));
  }

 private:
  const int64_t buffer_size_;
  const uint64_t seed_;
  const bool reshuffle_;
  mutable std::atomic<uint64_t> passes_{0};  ///< Passes begun: each has its own order.
};

}  // namespace

NodePtr make_take_node(NodePtr input, int64_t count) {
  return std::make_shared<TakeNode>(input, count);
}

NodePtr make_skip_node(NodePtr input, int64_t count) {
  return std::make_shared<SkipNode>(input, count);
}

NodePtr make_repeat_node(NodePtr input, int64_t count) {
  return std::make_shared<RepeatNode>(input, count);
}

NodePtr make_shard_node(NodePtr input, int64_t num_shards, int64_t index) {
  COHORT_CHECK_ARG(num_shards >= 1, "[dataset.shard] expected at least 1 shard, got ", num_shards);
  COHORT_CHECK_ARG(index >= 0 && index < num_shards, "[dataset.shard] expected an index in [0, ",
                   num_shards, "), got ", index);
  return std::make_shared<ShardNode>(input, num_shards, index);
}

NodePtr make_shuffle_node(NodePtr input, int64_t buffer_size, const ShuffleOptions& options) {
  COHORT_CHECK_ARG(buffer_size >= 1,
                   "[dataset.shuffle] expected a buffer of at least 1 element, got ", buffer_size);
  return std::make_shared<ShuffleNode>(input, buffer_size, options);
}

}  // namespace cohort::internal
