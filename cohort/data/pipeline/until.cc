// SPDX-License-Identifier: Apache-2.0
//
// take_while and unique.
#include <unordered_set>

#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/predicate_stream.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

/// Counts the elements so far; below 0: the end.
class TakeWhileStream final : public PredicateStream {
 public:
  using PredicateStream::PredicateStream;

  bool next(Element& out) override {
    constexpr int64_t kEnded = -1;
    if (count_ == kEnded) return false;
    if (read(out) && holds(out, count_++)) return true;
    count_ = kEnded;
    return false;
  }
};

class TakeWhileNode final : public StepNode<TakeWhileNode, ElementPredicate, KeepingNode> {
 public:
  TakeWhileNode(std::vector<NodePtr> inputs, ElementPredicate predicate)
      : StepNode(std::move(predicate), "take_while", inputs) {}
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<TakeWhileStream>(shared_from_this(), params(),
                                             open_stream<Element>(input()));
  }
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

class UniqueNode final : public StepNode<UniqueNode, NoParams, KeepingNode> {
 public:
  UniqueNode(std::vector<NodePtr> inputs, NoParams params) : StepNode(params, "unique", inputs) {}
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<UniqueStream>(open_stream<Element>(input()));
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::do_take_while(std::function<bool(const Element&)> predicate) const {
  return internal::data::with_step<internal::data::TakeWhileNode>(node(), std::move(predicate));
}
Dataset Dataset::unique() const {
  return internal::data::with_step<internal::data::UniqueNode>(node());
}

}  // namespace cohort::data
