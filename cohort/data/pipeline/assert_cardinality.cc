// SPDX-License-Identifier: Apache-2.0
//
// assert_cardinality: what nobody can know of a pipeline, said and checked.
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
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

class CardinalityNode final : public StepNode<CardinalityNode, int64_t, KeepingNode> {
 public:
  CardinalityNode(std::vector<NodePtr> inputs, int64_t cardinality)
      : StepNode(cardinality, "assert_cardinality", inputs) {}
  int64_t cardinality() const override { return params(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CardinalityStream>(open_stream<Element>(input()), shared_from_this());
  }
  std::string arguments() const override { return std::to_string(params()); }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::assert_cardinality(int64_t cardinality) const {
  COHORT_CHECK_ARG(cardinality >= 0 || cardinality == kInfiniteCardinality,
                   "[dataset.assert_cardinality] expected at least 0 or kInfiniteCardinality, got ",
                   cardinality);
  return internal::data::with_step<internal::data::CardinalityNode>(node(), cardinality);
}

}  // namespace cohort::data
