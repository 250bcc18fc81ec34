// SPDX-License-Identifier: Apache-2.0
//
// scan: a map function that hands a state on from element to element.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/fingerprint.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

using ScanFunction = std::function<std::pair<Element, Element>(const Element&, const Element&)>;

struct ScanParams {
  Element initial;
  ScanFunction fn;
};

class ScanNode final : public StepNode<ScanNode, ScanParams> {
 public:
  ScanNode(std::vector<NodePtr> inputs, ScanParams params)
      : StepNode(std::move(params), "scan", ElementSpec(), inputs) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override;
  std::string arguments() const override { return element_text(params().initial); }
};

class ScanStream final : public ElementStream {
 public:
  explicit ScanStream(std::shared_ptr<const ScanNode> node)
      : node_(std::move(node)),
        state_(node_->params().initial),
        input_(open_stream<Element>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    Element element;
    if (!input_->next(element)) return false;
    const int64_t index = index_++;
    try {
      auto [state, result] = node_->params().fn(state_, element);
      COHORT_CHECK_ARG(state.has_value() && result.has_value(),
                       "expected a function that returns a state and an element, got an "
                       "Element() without a value");
      state_ = std::move(state);
      out = std::move(result);
      return true;
    } catch (...) {
      rethrow_with_context(str_cat(node_->tag(), " element ", index, " of ", node_->path()));
    }
  }
  void save(StateWriter& out) override {
    out.put_int(index_);
    out.put_element(state_);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    index_ = in.get_int();
    state_ = in.get_element();
    input_->restore(in);
  }

 private:
  const std::shared_ptr<const ScanNode> node_;
  Element state_;
  const std::unique_ptr<ElementStream> input_;
  int64_t index_ = 0;
};

std::unique_ptr<ElementStream> ScanNode::make_stream() const {
  return std::make_unique<ScanStream>(self());
}

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::scan(
    Element initial_state,
    std::function<std::pair<Element, Element>(const Element&, const Element&)> fn) const {
  COHORT_CHECK_ARG(fn != nullptr, "[dataset.scan] expected a function, got an empty one");
  COHORT_CHECK_ARG(initial_state.has_value(), "[dataset.scan] expected a first state, got none");
  return internal::data::with_step<internal::data::ScanNode>(
      node(), internal::data::ScanParams{std::move(initial_state), std::move(fn)});
}

}  // namespace cohort::data
