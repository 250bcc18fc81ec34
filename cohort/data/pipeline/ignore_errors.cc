// SPDX-License-Identifier: Apache-2.0
//
// ignore_errors: what cannot be read is left out, counted and, at the end, said.
#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

class IgnoreErrorsStream final : public ElementStream {
 public:
  IgnoreErrorsStream(NodePtr node, IgnoreErrorsOptions options)
      : node_(std::move(node)),
        options_(std::move(options)),
        input_(open_stream<Element>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    while (true) {
      try {
        if (input_->next(out)) {
          out = out.materialize();  // What is computed later would fail later.
          return true;
        }
        log();
        return false;
      } catch (const Cancelled&) {
        throw;
      } catch (const Internal&) {
        throw;
      } catch (const std::exception& e) {
        if (options_.max_errors >= 0 && skipped_ >= options_.max_errors) throw;
        count(e.what());
      }
    }
  }
  void save(StateWriter& out) override {
    out.put_int(skipped_);
    out.put_text(first_);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    skipped_ = in.get_int();
    first_ = in.get_text();
    input_->restore(in);
  }

 private:
  void count(const char* text) {
    if (skipped_++ == 0) first_ = text;
    if (options_.skipped != nullptr) ++*options_.skipped;
  }
  void log() {
    if (skipped_ > 0 && options_.log_warning && !logged_) {
      COHORT_LOG(kWarning, node_->tag(), " left out ", skipped_, " elements of ", node_->path(),
                 "; the first: ", first_);
    }
    logged_ = true;
  }

  const NodePtr node_;
  const IgnoreErrorsOptions options_;
  const std::unique_ptr<ElementStream> input_;
  int64_t skipped_ = 0;
  std::string first_;
  bool logged_ = false;
};

class IgnoreErrorsNode final : public StepNode<IgnoreErrorsNode, IgnoreErrorsOptions, KeepingNode> {
 public:
  IgnoreErrorsNode(std::vector<NodePtr> inputs, IgnoreErrorsOptions options)
      : StepNode(std::move(options), "ignore_errors", inputs) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    return n > 0 ? kUnknownCardinality : n;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<IgnoreErrorsStream>(shared_from_this(), params());
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::ignore_errors(IgnoreErrorsOptions options) const {
  return internal::data::with_step<internal::data::IgnoreErrorsNode>(node(), std::move(options));
}

}  // namespace cohort::data
