// SPDX-License-Identifier: Apache-2.0
//
// take_while and unique.
#include <unordered_set>

#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/predicate_stream.h"

namespace cohort::internal {
namespace {

/// Counts the elements so far; below 0: the end.
class TakeWhileStream final : public PredicateStream {
 public:
  using PredicateStream::PredicateStream;

  bool next(Element& out) override {
    constexpr int64_t kEnd = -1;
    if (count_ == kEnd) return false;
    if (read(out) && holds(out, count_++)) return true;
    count_ = kEnd;
    return false;
  }
};

class TakeWhileNode final : public DatasetNode {
 public:
  TakeWhileNode(const NodePtr& input, ElementPredicate predicate)
      : DatasetNode("take_while", input->spec(), {input}), predicate_(std::move(predicate)) {}
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<TakeWhileStream>(shared_from_this(), predicate_,
                                             open_stream<Element>(input()));
  }
  int64_t batch_rows() const override { return input().batch_rows(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<TakeWhileNode>(inputs[0], predicate_);
  }

 private:
  const ElementPredicate predicate_;
};

class UniqueStream final : public ElementStream {
 public:
  explicit UniqueStream(std::unique_ptr<ElementStream> input) : input_(std::move(input)) {}

  bool next(Element& out) override {
    while (input_->next(out)) {
      StateWriter bytes;
      bytes.put_element(out);
      if (seen_.insert(std::move(bytes).take()).second) return true;
    }
    return false;
  }
  void save(StateWriter& out) override {
    out.put_int(static_cast<int64_t>(seen_.size()));
    for (const std::string& bytes : seen_) out.put_text(bytes);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      seen_.emplace(in.get_text());
    }
    input_->restore(in);
  }

 private:
  const std::unique_ptr<ElementStream> input_;
  std::unordered_set<std::string> seen_;  ///< Elements as bytes.
};

class UniqueNode final : public DatasetNode {
 public:
  explicit UniqueNode(const NodePtr& input) : DatasetNode("unique", input->spec(), {input}) {}
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<UniqueStream>(open_stream<Element>(input()));
  }
  int64_t batch_rows() const override { return input().batch_rows(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UniqueNode>(inputs[0]);
  }
};

}  // namespace

NodePtr make_take_while_node(NodePtr input, ElementPredicate predicate) {
  return std::make_shared<TakeWhileNode>(input, std::move(predicate));
}

NodePtr make_unique_node(NodePtr input) { return std::make_shared<UniqueNode>(input); }

}  // namespace cohort::internal
