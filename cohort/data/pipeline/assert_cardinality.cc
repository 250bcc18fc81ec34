// SPDX-License-Identifier: Apache-2.0
//
// assert_cardinality: what nobody can know of a pipeline, said and checked.
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal {
namespace {

/// Counts the elements so far.
class CardinalityStream final : public CountedStream<Element> {
 public:
  CardinalityStream(std::unique_ptr<ElementStream> input, NodePtr node)
      : CountedStream(std::move(input), 0), node_(std::move(node)) {}

  bool next(Element& out) override {
    const int64_t expected = node_->cardinality();
    if (!read(out)) {
      // Said once: the call after it finds the end.
      const int64_t got = std::exchange(count_, expected);
      COHORT_CHECK_STATE(
          got == expected, node_->tag(), " expected ",
          expected < 0 ? std::string("elements without end") : str_cat(expected, " elements"),
          ", got ", got);
      return false;
    }
    ++count_;
    COHORT_CHECK_STATE(expected < 0 || count_ <= expected, node_->tag(), " expected ", expected,
                       " elements, got more");
    return true;
  }

 private:
  const NodePtr node_;
};

class CardinalityNode final : public DatasetNode {
 public:
  CardinalityNode(const NodePtr& input, int64_t cardinality)
      : DatasetNode("assert_cardinality", input->spec(), {input}), cardinality_(cardinality) {}
  int64_t cardinality() const override { return cardinality_; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CardinalityStream>(open_stream<Element>(input()), shared_from_this());
  }
  int64_t batch_rows() const override { return input().batch_rows(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<CardinalityNode>(inputs[0], cardinality_);
  }
  std::string arguments() const override { return std::to_string(cardinality_); }

 private:
  const int64_t cardinality_;
};

}  // namespace

NodePtr make_cardinality_node(NodePtr input, int64_t cardinality) {
  COHORT_CHECK_ARG(cardinality >= 0 || cardinality == kInfiniteCardinality,
                   "[dataset.assert_cardinality] expected at least 0 or kInfiniteCardinality, got ",
                   cardinality);
  return std::make_shared<CardinalityNode>(input, cardinality);
}

}  // namespace cohort::internal
