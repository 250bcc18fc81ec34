// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/store/internal/element_store.h"

namespace cohort::internal::data {
namespace {

class StoredStream final : public ElementStream {
 public:
  StoredStream(NodePtr node, const ElementStore& store)
      : node_(std::move(node)), store_(store), stored_(store.find()) {
    const DatasetNode& from =
        stored_.dataset != nullptr ? *stored_.dataset : *node_->inputs().front();
    stream_ = open_stream<Element>(from);
  }

  bool next(Element& out) override {
    if (stream_ == nullptr) return false;
    if (stored_.dataset != nullptr) return stream_->next(out);
    if (kept_.has_value()) {
      out = std::exchange(kept_, {});
      return true;
    }
    if (std::exchange(first_, false)) sink_ = store_.begin();
    try {
      if (stream_->next(out)) {
        out = out.materialize();
        if (sink_ != nullptr) write(out);
        return true;
      }
      if (sink_ != nullptr) sink_->commit();
    } catch (...) {
      sink_.reset();  // An element is missing: this pass is not complete.
      throw;
    }
    sink_.reset();
    stream_.reset();
    return false;
  }
  void start() override {
    if (stream_ != nullptr) stream_->start();
  }
  void save(StateWriter& out) override {
    out.put_text(stored_.id);
    out.put_int(stream_ != nullptr ? 1 : 0);
    out.put_int(first_ ? 1 : 0);
    out.put_element(kept_);
    if (stream_ != nullptr) stream_->save(out);
  }
  void restore(StateReader& in) override {
    const std::string id(in.get_text());
    const bool reads = in.get_flag();
    first_ = in.get_flag();
    kept_ = in.get_element();
    if (id.empty() && stored_.dataset != nullptr) {
      // What is stored by now came from another pass: this one has to go on as it was.
      stored_ = {};
      stream_ = open_stream<Element>(*node_->inputs().front());
      first_ = false;
    }
    COHORT_CHECK_STATE(id == stored_.id, node_->tag(),
                       " expected the stored elements that the saved position is in, got ",
                       stored_.dataset == nullptr ? "none" : "those of another pass");
    if (reads) {
      stream_->restore(in);
    } else {
      stream_.reset();
    }
  }

 private:
  /// What cannot be stored is not lost: the call after the error gives it.
  void write(const Element& element) {
    try {
      sink_->write(element);
    } catch (...) {
      kept_ = element;
      throw;
    }
  }

  const NodePtr node_;
  const ElementStore& store_;  ///< Owned by node_.
  StoredElements stored_;
  std::unique_ptr<ElementStream> stream_;  ///< Of stored_ or the input; null after its end.
  std::unique_ptr<ElementSink> sink_;      ///< Null: nothing is written.
  Element kept_;                           ///< Read, but neither stored nor given out.
  bool first_ = true;                      ///< Before the first element.
};

class StoredNode final : public StepNode<StoredNode, StoredParams, KeepingNode> {
 public:
  StoredNode(std::vector<NodePtr> inputs, StoredParams params)
      : StepNode(params, params.operation, inputs), store_(params.make_store(inputs.front())) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<StoredStream>(shared_from_this(), *store_);
  }
  ShareOf share_of() const override { return params().share_of; }

 private:
  const std::unique_ptr<const ElementStore> store_;
};

}  // namespace

Dataset with_store(const NodePtr& input, StoredParams params) {
  return with_step<StoredNode>(input, std::move(params));
}

}  // namespace cohort::internal::data
