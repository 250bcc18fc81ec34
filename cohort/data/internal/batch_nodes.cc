// SPDX-License-Identifier: Apache-2.0
//
// batch and unbatch. A batch over rows in memory only notes row numbers; its element gathers them
// when it is read (see row_source.h).
#include "cohort/base/check.h"
#include "cohort/data/internal/batching.h"
#include "cohort/data/internal/deferred_element.h"
#include "cohort/data/internal/nodes.h"

namespace cohort::internal {
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
    auto rows = std::make_shared<std::vector<int64_t>>();
    rows->reserve(static_cast<std::size_t>(std::min(size_, source_->size())));
    int64_t row = 0;
    while (static_cast<int64_t>(rows->size()) < size_ && order_->next(row)) rows->push_back(row);
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

class ElementBatchStream final : public ElementStream {
 public:
  ElementBatchStream(NodePtr node, std::unique_ptr<ElementStream> input, int64_t size,
                     bool drop_remainder)
      : node_(std::move(node)),
        input_(std::move(input)),
        size_(static_cast<std::size_t>(size)),
        drop_remainder_(drop_remainder) {}

  bool next(Element& out) override {
    Element part;
    // What is collected stays when the input throws: a reader may go on after an error.
    while (parts_.size() < size_ && input_->next(part)) parts_.push_back(std::move(part));
    if (parts_.empty() || (drop_remainder_ && parts_.size() < size_)) return false;
    const std::vector<Element> parts = std::exchange(parts_, {});
    out = stack_elements(parts, node_->tag());
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(static_cast<int64_t>(parts_.size()));
    for (const Element& part : parts_) out.put_element(part);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    for (int64_t left = in.get_count(static_cast<int64_t>(size_)); left > 0; --left) {
      parts_.push_back(in.get_element());
    }
    input_->restore(in);
  }

 private:
  const NodePtr node_;
  const std::unique_ptr<ElementStream> input_;
  const std::size_t size_;
  const bool drop_remainder_;
  std::vector<Element> parts_;
};

class BatchNode final : public DatasetNode {
 public:
  BatchNode(const NodePtr& input, int64_t size, bool drop_remainder)
      : DatasetNode("batch", batched_spec(input->spec(), drop_remainder ? size : kUnknownDim),
                    {input}),
        size_(size),
        drop_remainder_(drop_remainder) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n < 0) return n;
    return n / size_ + (n % size_ != 0 && !drop_remainder_ ? 1 : 0);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    if (auto source = input().row_source()) {
      return std::make_unique<RowBatchStream>(std::move(source), input().make_row_stream(), size_,
                                              drop_remainder_);
    }
    return std::make_unique<ElementBatchStream>(shared_from_this(), input().make_stream(), size_,
                                                drop_remainder_);
  }
  int64_t batch_rows() const override { return size_; }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<BatchNode>(inputs[0], size_, drop_remainder_);
  }

 private:
  const int64_t size_;
  const bool drop_remainder_;
};

/// The spec of one row. Errors: InvalidArgument if a leaf has no first dimension.
ElementSpec row_spec(const ElementSpec& batch) {
  if (batch.is_unknown()) return batch;
  if (batch.is_leaf()) {
    TensorSpec leaf = batch.leaf();
    if (!leaf.known_rank) return leaf;
    COHORT_CHECK_ARG(!leaf.shape.empty(),
                     "[dataset.unbatch] expected components with a first dimension, got ",
                     leaf.to_string());
    leaf.shape.erase(leaf.shape.begin());
    return leaf;
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    parts.push_back(row_spec(batch[i]));
    if (!batch.names().empty()) named.emplace_back(batch.names()[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

bool all_leaves_have_rows(const Element& element, int64_t rows) {
  if (!element.is_tuple()) return element.rows() == rows;
  for (std::size_t i = 0; i < element.size(); ++i) {
    if (!all_leaves_have_rows(element[i], rows)) return false;
  }
  return true;
}

class UnbatchStream final : public ElementStream {
 public:
  explicit UnbatchStream(std::unique_ptr<ElementStream> input) : input_(std::move(input)) {}

  bool next(Element& out) override {
    while (row_ == rows_) {
      if (!input_->next(batch_)) return false;
      row_ = rows_ = 0;
      COHORT_CHECK_ARG(batch_.rows() >= 0 && all_leaves_have_rows(batch_, batch_.rows()),
                       "[dataset.unbatch] expected equal first dimensions, got ",
                       batch_.spec().to_string());
      rows_ = batch_.rows();
    }
    out = unstack_element(batch_, row_++);
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(rows_ - row_);
    if (row_ < rows_) out.put_element(batch_.slice(row_, rows_ - row_));
    input_->save(out);
  }
  void restore(StateReader& in) override {
    rows_ = in.get_count(std::numeric_limits<int64_t>::max());
    if (rows_ > 0) batch_ = in.get_element();
    if (rows_ > 0 && !all_leaves_have_rows(batch_, rows_)) StateReader::fail();
    input_->restore(in);
  }

 private:
  const std::unique_ptr<ElementStream> input_;
  Element batch_;
  int64_t row_ = 0;
  int64_t rows_ = 0;
};

class UnbatchNode final : public DatasetNode {
 public:
  explicit UnbatchNode(const NodePtr& input)
      : DatasetNode("unbatch", row_spec(input->spec()), {input}),
        rows_(input->spec().is_unknown()     ? kUnknownDim
              : input->spec().flat().empty() ? kUnknownDim
                                             : rows_of(input->spec().flat().front())) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n == 0 || n == kInfiniteCardinality) return n;
    return n < 0 || rows_ == kUnknownDim ? kUnknownCardinality : saturated_product(n, rows_);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<UnbatchStream>(input().make_stream());
  }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UnbatchNode>(inputs[0]);
  }

 private:
  static int64_t rows_of(const TensorSpec& leaf) {
    return leaf.known_rank ? leaf.shape.front() : kUnknownDim;
  }

  const int64_t rows_;  ///< Of every batch; kUnknownDim where it varies.
};

}  // namespace

NodePtr make_batch_node(NodePtr input, int64_t size, const BatchOptions& options) {
  COHORT_CHECK_ARG(size >= 1, "[dataset.batch] expected a size of at least 1, got ", size);
  return std::make_shared<BatchNode>(input, size, options.drop_remainder);
}

NodePtr make_unbatch_node(NodePtr input) { return std::make_shared<UnbatchNode>(input); }

}  // namespace cohort::internal
