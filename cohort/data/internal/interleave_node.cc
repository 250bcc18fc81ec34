// SPDX-License-Identifier: Apache-2.0
//
// flat_map and interleave: a dataset for every element, read in turns.
#include "cohort/base/check.h"
#include "cohort/data/internal/nodes.h"
#include "cohort/data/internal/prefetch_stream.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal {
namespace {

class InterleaveNode;

/// One of the datasets that are read in turns.
struct Turn {
  Element argument;  ///< What the function made it of.
  NodePtr node;      ///< Null: free for the next.
  std::unique_ptr<ElementStream> stream;
};

class InterleaveStream final : public ElementStream {
 public:
  explicit InterleaveStream(std::shared_ptr<const InterleaveNode> node);

  bool next(Element& out) override;
  void save(StateWriter& out) override;
  void restore(StateReader& in) override;

 private:
  /// Reads the next argument and opens its dataset; false at the end of the input.
  bool open(Turn& turn);
  void make_stream(std::size_t index);
  void advance();

  const std::shared_ptr<const InterleaveNode> node_;
  const std::unique_ptr<ElementStream> input_;
  std::vector<Turn> turns_;
  std::size_t current_ = 0;
  int64_t taken_ = 0;  ///< Of the current block.
  std::size_t open_ = 0;
  int64_t index_ = 0;  ///< Arguments read.
  bool input_ended_ = false;
};

class InterleaveNode final : public DatasetNode {
 public:
  InterleaveNode(std::string operation, const NodePtr& input, DatasetFunction fn,
                 const InterleaveOptions& options)
      : DatasetNode(std::move(operation), options.spec.value_or(ElementSpec()), {input}),
        fn_(std::move(fn)),
        options_(options) {}

  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<InterleaveStream>(
        std::static_pointer_cast<const InterleaveNode>(shared_from_this()));
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<InterleaveNode>(operation(), inputs[0], fn_, options_);
  }
  const DatasetFunction* dataset_function() const override { return &fn_; }

  NodePtr call(const Element& argument, int64_t index) const {
    try {
      NodePtr out = fn_(argument);
      COHORT_CHECK_ARG(out != nullptr, "expected a dataset, got none");
      COHORT_CHECK_ARG(spec().compatible_with(out->spec()), "expected elements like ",
                       spec().to_string(), ", got ", out->spec().to_string());
      return out;
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
  const InterleaveOptions& turns() const { return options_; }

 private:
  const DatasetFunction fn_;
  const InterleaveOptions options_;
};

InterleaveStream::InterleaveStream(std::shared_ptr<const InterleaveNode> node)
    : node_(std::move(node)),
      input_(node_->inputs().front()->make_stream()),
      turns_(static_cast<std::size_t>(node_->turns().cycle_length)) {}

bool InterleaveStream::next(Element& out) {
  while (!input_ended_ || open_ > 0) {
    Turn& turn = turns_[current_];
    if (turn.node != nullptr) {
      if (turn.stream->next(out)) {
        if (++taken_ == node_->turns().block_length) advance();
        return true;
      }
      turn = Turn{};
      --open_;
      advance();
    } else if (input_ended_ || !open(turn)) {
      advance();
    }
  }
  return false;
}

bool InterleaveStream::open(Turn& turn) {
  Element argument;
  if (!input_->next(argument)) {
    input_ended_ = true;
    return false;
  }
  turn.node = node_->call(argument, index_++);
  turn.argument = std::move(argument);
  make_stream(static_cast<std::size_t>(&turn - turns_.data()));
  turn.stream->start();
  ++open_;
  return true;
}

void InterleaveStream::make_stream(std::size_t index) {
  Turn& turn = turns_[index];
  turn.stream = turn.node->make_stream();
  // parallel_calls of the turns are read ahead, each on a thread of its own.
  const auto threads = static_cast<std::size_t>(node_->turns().parallel_calls);
  if (threads < 2 || index >= threads) return;
  const auto ahead = static_cast<std::size_t>(std::max<int64_t>(2, node_->turns().block_length));
  turn.stream = make_prefetch_stream(std::move(turn.stream), ahead);
}

void InterleaveStream::advance() {
  current_ = (current_ + 1) % turns_.size();
  taken_ = 0;
}

void InterleaveStream::save(StateWriter& out) {
  out.put_int(static_cast<int64_t>(current_));
  out.put_int(taken_);
  out.put_int(index_);
  out.put_int(input_ended_ ? 1 : 0);
  for (const Turn& turn : turns_) {
    out.put_int(turn.node != nullptr ? 1 : 0);
    if (turn.node == nullptr) continue;
    out.put_element(turn.argument);
    turn.stream->save(out);
  }
  input_->save(out);
}

void InterleaveStream::restore(StateReader& in) {
  current_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(turns_.size()) - 1));
  taken_ = in.get_int();
  index_ = in.get_int();
  input_ended_ = in.get_flag();
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    if (!in.get_flag()) continue;
    Turn& turn = turns_[i];
    turn.argument = in.get_element();
    turn.node = node_->call(turn.argument, index_ - 1);
    make_stream(i);
    turn.stream->restore(in);
    turn.stream->start();
    ++open_;
  }
  input_->restore(in);
}

}  // namespace

NodePtr make_interleave_node(std::string operation, NodePtr input, DatasetFunction fn,
                             InterleaveOptions options) {
  COHORT_CHECK_ARG(options.cycle_length >= 1, "[dataset.", operation,
                   "] expected a cycle of at least 1 dataset, got ", options.cycle_length);
  COHORT_CHECK_ARG(options.block_length >= 1, "[dataset.", operation,
                   "] expected blocks of at least 1 element, got ", options.block_length);
  COHORT_CHECK_ARG(options.parallel_calls >= 1 || options.parallel_calls == kAutotune, "[dataset.",
                   operation, "] expected at least 1 parallel call or kAutotune, got ",
                   options.parallel_calls);
  if (options.parallel_calls == kAutotune) options.parallel_calls = usable_cores();
  return std::make_shared<InterleaveNode>(std::move(operation), input, std::move(fn), options);
}

}  // namespace cohort::internal
