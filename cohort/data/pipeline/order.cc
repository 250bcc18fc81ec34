// SPDX-License-Identifier: Apache-2.0
//
// take, skip, repeat and shard. Each stream is written once for elements and for row numbers: over
// rows in memory only numbers move until a batch gathers them.
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/order_node.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

/// Counts what is left; below 0: all.
template <class T>
class TakeStream final : public CountedStream<T> {
 public:
  using CountedStream<T>::CountedStream;
  bool next(T& out) override {
    if (this->count_ == 0 || !this->read(out)) return false;
    if (this->count_ > 0) --this->count_;
    return true;
  }
};

/// Counts what is left to skip.
template <class T>
class SkipStream final : public CountedStream<T> {
 public:
  using CountedStream<T>::CountedStream;
  bool next(T& out) override {
    for (; this->count_ > 0; --this->count_) {
      if (!this->read(out)) return false;
    }
    return this->read(out);
  }
};

template <class T>
class ShardStream final : public Stream<T> {
 public:
  ShardStream(std::unique_ptr<Stream<T>> input, int64_t num_shards, int64_t index)
      : input_(std::move(input)), num_shards_(num_shards), skip_(index) {}
  bool next(T& out) override {
    while (true) {
      try {
        if (!input_->next(out)) return false;
      } catch (const Cancelled&) {
        throw;
      } catch (...) {
        // One that cannot be read has its place, too: other shards count it as well.
        count_one();
        throw;
      }
      if (count_one()) return true;
    }
  }
  void save(StateWriter& out) override {
    out.put_int(skip_);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    skip_ = in.get_count(num_shards_ - 1);
    input_->restore(in);
  }

 private:
  /// True if it is ours.
  bool count_one() {
    const bool ours = skip_ == 0;
    skip_ = ours ? num_shards_ - 1 : skip_ - 1;
    return ours;
  }

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
      // An empty input repeated for ever is empty, not a loop without end. Passes may differ, so
      // that of several one may be empty.
      if (fresh_ && (left_ < 0 || input_->cardinality() == 0)) left_ = 0;
    }
  }
  void save(StateWriter& out) override {
    out.put_int(left_);
    out.put_int(fresh_ ? 1 : 0);
    out.put_int(pass_ != nullptr ? 1 : 0);
    pass_ != nullptr ? pass_->save(out) : input_->save_shared(out);
  }
  void restore(StateReader& in) override {
    left_ = in.get_int();
    fresh_ = in.get_flag();
    if (!in.get_flag()) return input_->restore_shared(in);
    pass_ = open_stream<T>(*input_);
    pass_->restore(in);
  }

 private:
  const NodePtr input_;
  int64_t left_;  ///< Passes to begin; below 0: no end.
  std::unique_ptr<Stream<T>> pass_;
  bool fresh_ = false;
};

class TakeNode final : public StepNode<TakeNode, int64_t, OrderNode<TakeNode>> {
 public:
  TakeNode(std::vector<NodePtr> inputs, int64_t count) : StepNode(count, "take", inputs) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    const int64_t count = params();
    if (count < 0 || n == kUnknownCardinality) return count == 0 ? 0 : n;
    return n == kInfiniteCardinality ? count : std::min(n, count);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<TakeStream<T>>(open_stream<T>(input()), params());
  }
  std::string arguments() const override { return std::to_string(params()); }
};

class SkipNode final : public StepNode<SkipNode, int64_t, OrderNode<SkipNode>> {
 public:
  SkipNode(std::vector<NodePtr> inputs, int64_t count) : StepNode(count, "skip", inputs) {}
  int64_t cardinality() const override {
    if (params() < 0) return 0;
    const int64_t n = input().cardinality();
    return n < 0 ? n : std::max<int64_t>(0, n - params());
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    // Skipping everything of an input without end must not read it.
    if (params() < 0) return std::make_unique<TakeStream<T>>(open_stream<T>(input()), 0);
    return std::make_unique<SkipStream<T>>(open_stream<T>(input()), params());
  }
  std::string arguments() const override { return std::to_string(params()); }
};

class RepeatNode final : public StepNode<RepeatNode, int64_t, OrderNode<RepeatNode>> {
 public:
  RepeatNode(std::vector<NodePtr> inputs, int64_t count) : StepNode(count, "repeat", inputs) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    const int64_t count = params();
    if (count == 0 || n == 0) return 0;
    if (count < 0) return n == kUnknownCardinality ? n : kInfiniteCardinality;
    return n < 0 ? n : saturated_product(n, count);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<RepeatStream<T>>(inputs().front(), params());
  }
  /// Of the input's, so that a worker reads the same files in every pass.
  ShareOf share_of() const override { return ShareOf::kInputAnyOrder; }
  std::string arguments() const override { return std::to_string(params()); }
};

struct ShardParams {
  int64_t num_shards;
  int64_t index;
};

class ShardNode final : public StepNode<ShardNode, ShardParams, OrderNode<ShardNode>> {
 public:
  ShardNode(std::vector<NodePtr> inputs, ShardParams params) : StepNode(params, "shard", inputs) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    const auto [num_shards, index] = params();
    return n < 0 ? n : n / num_shards + (index < n % num_shards ? 1 : 0);
  }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<ShardStream<T>>(open_stream<T>(input()), params().num_shards,
                                            params().index);
  }
  std::string arguments() const override {
    return str_cat(params().index, " of ", params().num_shards);
  }
};

/// Where an auto-shard policy of kHint puts its shard.
class ShardHintNode final : public StepNode<ShardHintNode, NoParams, KeepingNode> {
 public:
  ShardHintNode(std::vector<NodePtr> inputs, NoParams params)
      : StepNode(params, "shard_hint", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    throw FailedPrecondition(
        "[dataset.shard] shard(kShardHint, 0) is a placeholder, and cannot be read: call "
        "auto_shard with AutoShardPolicy::kHint first, which puts a worker's shard in its place");
  }
  bool awaits_shard() const override { return true; }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::take(int64_t count) const {
  return internal::data::with_step<internal::data::TakeNode>(node(), count);
}
Dataset Dataset::skip(int64_t count) const {
  return internal::data::with_step<internal::data::SkipNode>(node(), count);
}
Dataset Dataset::repeat(int64_t count) const {
  return internal::data::with_step<internal::data::RepeatNode>(node(), count);
}
Dataset Dataset::shard(int64_t num_shards, int64_t index) const {
  if (num_shards == kShardHint)
    return internal::data::with_step<internal::data::ShardHintNode>(node());
  COHORT_CHECK_ARG(num_shards >= 1, "[dataset.shard] expected at least 1 shard, got ", num_shards);
  COHORT_CHECK_ARG(index >= 0 && index < num_shards, "[dataset.shard] expected an index in [0, ",
                   num_shards, "), got ", index);
  return internal::data::with_step<internal::data::ShardNode>(
      node(), internal::data::ShardParams{num_shards, index});
}

}  // namespace cohort::data
