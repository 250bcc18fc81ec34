// SPDX-License-Identifier: Apache-2.0
//
// scan: a map function that hands a state on from element to element.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/fingerprint.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal {
namespace {

class ScanStream final : public ElementStream {
 public:
  ScanStream(NodePtr node, const ScanFunction& fn, Element state,
             std::unique_ptr<ElementStream> input)
      : node_(std::move(node)), fn_(fn), state_(std::move(state)), input_(std::move(input)) {}

  bool next(Element& out) override {
    Element element;
    if (!input_->next(element)) return false;
    const int64_t index = index_++;
    try {
      auto [state, result] = fn_(state_, element);
      COHORT_CHECK_ARG(state.has_value() && result.has_value(),
                       "expected a state and an element, got less");
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
  const NodePtr node_;
  const ScanFunction& fn_;  ///< Owned by node_.
  Element state_;
  const std::unique_ptr<ElementStream> input_;
  int64_t index_ = 0;
};

class ScanNode final : public DatasetNode {
 public:
  ScanNode(const NodePtr& input, Element initial, ScanFunction fn)
      : DatasetNode("scan", ElementSpec(), {input}),
        initial_(std::move(initial)),
        fn_(std::move(fn)) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<ScanStream>(shared_from_this(), fn_, initial_,
                                        open_stream<Element>(input()));
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ScanNode>(inputs[0], initial_, fn_);
  }
  std::string arguments() const override { return element_text(initial_); }

 private:
  const Element initial_;
  const ScanFunction fn_;
};

}  // namespace

NodePtr make_scan_node(NodePtr input, Element initial_state, ScanFunction fn) {
  COHORT_CHECK_ARG(initial_state.has_value(), "[dataset.scan] expected a first state, got none");
  COHORT_CHECK_ARG(fn != nullptr, "[dataset.scan] expected a function, got none");
  return std::make_shared<ScanNode>(input, std::move(initial_state), std::move(fn));
}

}  // namespace cohort::internal
