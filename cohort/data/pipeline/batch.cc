// SPDX-License-Identifier: Apache-2.0
//
// batch, and what other verbs' batches share with it. A batch over rows in memory only notes row
// numbers; its element gathers them when it is read (see row_source.h).
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/pipeline/internal/combine_node.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

class RowBatchStream final : public ElementStream {
 public:
  RowBatchStream(std::shared_ptr<const RowSource> source, std::unique_ptr<RowStream> order,
                 int64_t size, bool drop_remainder)
      : source_(std::move(source)),
        order_(std::move(order)),
        size_(size),
        drop_remainder_(drop_remainder) {}

  bool next(Element& out) override {
    check_cancelled();
    auto rows = std::make_shared<std::vector<int64_t>>();
    // Sizes may stand for "all", of a source that is long and read in part.
    constexpr int64_t kMostReserved = 1 << 20;
    rows->reserve(static_cast<std::size_t>(std::min({size_, source_->size(), kMostReserved})));
    int64_t row = 0;
    while (static_cast<int64_t>(rows->size()) < size_ && order_->next(row)) {
      source_->check(row);
      rows->push_back(row);
    }
    if (rows->empty()) return false;
    if (drop_remainder_ && static_cast<int64_t>(rows->size()) < size_) return false;
    out = source_->gather_later(std::move(rows));
    return true;
  }
  void save(StateWriter& out) override { order_->save(out); }
  void restore(StateReader& in) override { order_->restore(in); }

 private:
  const std::shared_ptr<const RowSource> source_;
  const std::unique_ptr<RowStream> order_;
  const int64_t size_;
  const bool drop_remainder_;
};

class CombineNode final : public StepNode<CombineNode, CombineParams> {
 public:
  CombineNode(std::vector<NodePtr> inputs, CombineParams params)
      : StepNode(params, params.operation, params.spec, inputs) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n < 0) return n;
    return n / params().size + (n % params().size != 0 && !params().drop_remainder ? 1 : 0);
  }
  std::unique_ptr<ElementStream> make_stream() const override;
  bool gains_from_prefetch() const override {
    return !params().only_stacks || input().row_source() == nullptr;
  }
  int64_t batch_rows() const override { return params().size; }
  std::string arguments() const override {
    return str_cat(params().size, params().drop_remainder ? " whole" : "", params().more_arguments);
  }
};

/// Collects elements until a batch is full.
class CombineStream final : public ElementStream {
 public:
  explicit CombineStream(std::shared_ptr<const CombineNode> node)
      : node_(std::move(node)),
        size_(static_cast<std::size_t>(node_->params().size)),
        input_(open_stream<Element>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    Element part;
    // What is collected stays when the input throws: a reader may go on after an error.
    while (parts_.size() < size_ && input_->next(part)) parts_.push_back(std::move(part));
    if (parts_.empty() || (node_->params().drop_remainder && parts_.size() < size_)) return false;
    const std::vector<Element> parts = std::exchange(parts_, {});
    out = node_->params().combine(parts);
    return true;
  }
  void save(StateWriter& out) override {
    put_elements(out, parts_);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    parts_ = get_elements(in);
    input_->restore(in);
  }

 private:
  const std::shared_ptr<const CombineNode> node_;
  const std::size_t size_;
  const std::unique_ptr<ElementStream> input_;
  std::vector<Element> parts_;
};

/// Deferred batches are of rows of one shape.
bool has_one_shape(const ElementSpec& row) {
  const std::vector<TensorSpec> leaves = row.flat();
  return std::all_of(leaves.begin(), leaves.end(), [](const TensorSpec& leaf) {
    return std::count(leaf.shape.begin(), leaf.shape.end(), kUnknownDim) == 0;
  });
}

std::unique_ptr<ElementStream> CombineNode::make_stream() const {
  if (!params().only_stacks) return std::make_unique<CombineStream>(self());
  auto source = input().row_source();
  if (source != nullptr && has_one_shape(source->spec())) {
    return std::make_unique<RowBatchStream>(std::move(source), input().make_row_stream(),
                                            params().size, params().drop_remainder);
  }
  // A report is to show what makes the rows apart from their batches.
  auto batches = Pass::current()->stages() != nullptr
                     ? nullptr
                     : input().make_batch_stream(params().size, params().drop_remainder);
  return batches != nullptr ? std::move(batches) : std::make_unique<CombineStream>(self());
}

}  // namespace

Dataset with_combined_batches(const NodePtr& input, CombineParams params) {
  return with_step<CombineNode>(input, std::move(params));
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::batch(int64_t size, BatchOptions options) const {
  COHORT_CHECK_ARG(size >= 1, "[dataset.batch] expected a size of at least 1, got ", size);
  const internal::data::NodePtr& input = node();
  const int64_t rows = options.drop_remainder ? size : kUnknownDim;
  return internal::data::with_combined_batches(
      input, {.operation = "batch",
              .spec = internal::data::batched_spec(input->spec(), rows),
              .size = size,
              .drop_remainder = options.drop_remainder,
              .combine =
                  [](std::span<const Element> parts) {
                    return internal::data::stack_elements(parts, "[dataset.batch]");
                  },
              .only_stacks = true});
}

}  // namespace cohort::data
