// SPDX-License-Identifier: Apache-2.0
//
// batch, unbatch and rebatch. A batch over rows in memory only notes row numbers; its element
// gathers them when it is read (see row_source.h).
#include <algorithm>
#include <functional>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/ragged.h"
#include "cohort/data/formats/internal/file_nodes.h"
#include "cohort/data/pipeline/internal/combine_node.h"
#include "cohort/data/pipeline/internal/nodes.h"

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

class BatchNode final : public CombineNode {
 public:
  BatchNode(const NodePtr& input, int64_t size, bool drop_remainder)
      : CombineNode("batch", batched_spec(input->spec(), drop_remainder ? size : kUnknownDim),
                    input, size, drop_remainder, [](std::span<const Element> parts) {
                      return stack_elements(parts, "[dataset.batch]");
                    }) {}

  std::unique_ptr<ElementStream> make_stream() const override {
    auto source = input().row_source();
    // Deferred batches are of rows of one shape.
    if (source == nullptr || !has_one_shape(source->spec())) {
      const auto* files = dynamic_cast<const FilesNode*>(&input());
      // A report is to show the files apart from their batches.
      return files == nullptr || Pass::current()->stages() != nullptr
                 ? CombineNode::make_stream()
                 : files->make_batch_stream(size_, drop_remainder_);
    }
    return std::make_unique<RowBatchStream>(std::move(source), input().make_row_stream(), size_,
                                            drop_remainder_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<BatchNode>(inputs[0], size_, drop_remainder_);
  }

 private:
  static bool has_one_shape(const ElementSpec& row) {
    const std::vector<TensorSpec> leaves = row.flat();
    return std::all_of(leaves.begin(), leaves.end(), [](const TensorSpec& leaf) {
      return std::count(leaf.shape.begin(), leaf.shape.end(), kUnknownDim) == 0;
    });
  }
};

/// The spec of one row. Errors: InvalidArgument if a leaf has no first dimension.
ElementSpec row_spec(const std::string& where, const ElementSpec& batch) {
  if (batch.is_unknown()) return batch;
  COHORT_CHECK_ARG(!batch.is_dataset(), where, " expected batches, got ", batch.to_string(),
                   "; flat_map makes elements of datasets");
  if (batch.is_ragged()) return with_rows(batch[0], kUnknownDim);
  if (batch.is_leaf()) {
    TensorSpec leaf = batch.leaf();
    if (!leaf.known_rank) return leaf;
    COHORT_CHECK_ARG(!leaf.shape.empty(), where,
                     " expected components with a first dimension, got ", leaf.to_string());
    leaf.shape.erase(leaf.shape.begin());
    return leaf;
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    parts.push_back(row_spec(where, batch[i]));
    if (!batch.names().empty()) named.emplace_back(batch.names()[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

bool all_leaves_have_rows(const Element& element, int64_t rows) {
  if (!element.is_tuple() || element.is_ragged()) return element.rows() == rows;
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
      : DatasetNode("unbatch", row_spec("[dataset.unbatch]", input->spec()), {input}),
        rows_(input->spec().rows()) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n == 0 || n == kInfiniteCardinality) return n;
    return n < 0 || rows_ == kUnknownDim ? kUnknownCardinality : saturated_product(n, rows_);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<UnbatchStream>(open_stream<Element>(input()));
  }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UnbatchNode>(inputs[0]);
  }

 private:
  const int64_t rows_;  ///< Of every batch; kUnknownDim where it varies.
};

/// Cuts the rows of batches anew. Slices of one batch, and batches of rows in memory, stay
/// deferred.
class RebatchStream final : public ElementStream {
 public:
  RebatchStream(NodePtr node, const std::vector<int64_t>& sizes, bool drop_remainder)
      : node_(std::move(node)),
        sizes_(sizes),
        has_empty_(std::count(sizes.begin(), sizes.end(), 0) > 0),
        drop_remainder_(drop_remainder),
        input_(open_stream<Element>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    const int64_t size = sizes_[turn_];
    while (!ended_ && collected_ < size) collect(size - collected_);
    if (size == 0) {
      // An empty batch needs an input to look like; there is none after the end.
      if (!empty_.has_value()) fetch();
      if (ended_) return false;
      out = empty_;
    } else if (collected_ == 0 || (drop_remainder_ && collected_ < size)) {
      return false;
    } else {
      const std::vector<Element> parts = std::exchange(parts_, {});
      collected_ = 0;
      out = parts.size() == 1 ? parts.front() : concatenate_elements(parts, node_->tag());
    }
    turn_ = (turn_ + 1) % sizes_.size();
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(static_cast<int64_t>(turn_));
    out.put_int(ended_ ? 1 : 0);
    put_elements(out, parts_);
    out.put_element(rest_);
    out.put_element(empty_);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    turn_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(sizes_.size()) - 1));
    ended_ = in.get_flag();
    parts_ = get_elements(in);
    for (const Element& part : parts_) collected_ += part.rows();
    rest_ = in.get_element();
    empty_ = in.get_element();
    input_->restore(in);
  }

 private:
  /// The next batch of the input as rest_, or ended_.
  void fetch() {
    Element batch;
    ended_ = !input_->next(batch);
    if (ended_) return;
    COHORT_CHECK_ARG(batch.rows() >= 0 && all_leaves_have_rows(batch, batch.rows()),
                     "[dataset.rebatch] expected batches with equal first dimensions, got ",
                     batch.spec().to_string());
    if (has_empty_ && !empty_.has_value()) empty_ = batch.slice(0, 0).materialize();
    rest_ = std::move(batch);
  }
  /// At most so many rows of one batch.
  void collect(int64_t most) {
    if (!rest_.has_value()) return fetch();
    const int64_t rows = std::min(most, rest_.rows());
    if (rows > 0) parts_.push_back(rest_.slice(0, rows));
    collected_ += rows;
    rest_ = rest_.rows() == rows ? Element() : rest_.slice(rows, rest_.rows() - rows);
  }

  const NodePtr node_;
  const std::vector<int64_t>& sizes_;  ///< Owned by node_.
  const bool has_empty_;               ///< One of the sizes is 0.
  const bool drop_remainder_;
  const std::unique_ptr<ElementStream> input_;
  std::size_t turn_ = 0;        ///< Of sizes_, for the next batch.
  std::vector<Element> parts_;  ///< Of the next batch.
  int64_t collected_ = 0;       ///< Rows of parts_.
  Element rest_;                ///< Of the input's last batch.
  Element empty_;               ///< A batch of no rows, once there was one with rows.
  bool ended_ = false;
};

class RebatchNode final : public DatasetNode {
 public:
  RebatchNode(const NodePtr& input, std::vector<int64_t> sizes, bool drop_remainder)
      : DatasetNode("rebatch",
                    batched_spec(row_spec("[dataset.rebatch]", input->spec()),
                                 drop_remainder ? common_size(sizes) : kUnknownDim),
                    {input}),
        sizes_(std::move(sizes)),
        drop_remainder_(drop_remainder) {}

  /// Known where every batch of the input has equally many rows (TensorFlow never knows).
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n == 0 || n == kInfiniteCardinality) return n;
    const int64_t size = common_size(sizes_);
    const int64_t input_rows = input().spec().rows();
    if (n < 0 || size == kUnknownDim || input_rows == kUnknownDim) return kUnknownCardinality;
    const int64_t rows = saturated_product(n, input_rows);
    return rows / size + (rows % size != 0 && !drop_remainder_ ? 1 : 0);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<RebatchStream>(shared_from_this(), sizes_, drop_remainder_);
  }
  int64_t batch_rows() const override { return common_size(sizes_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<RebatchNode>(inputs[0], sizes_, drop_remainder_);
  }
  std::string arguments() const override {
    return str_cat(bracketed(sizes_), drop_remainder_ ? " whole" : "");
  }

 private:
  static int64_t common_size(const std::vector<int64_t>& sizes) {
    const bool equal =
        std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
    return equal ? sizes.front() : kUnknownDim;
  }

  const std::vector<int64_t> sizes_;
  const bool drop_remainder_;
};

}  // namespace

NodePtr make_batch_node(NodePtr input, int64_t size, const BatchOptions& options) {
  COHORT_CHECK_ARG(size >= 1, "[dataset.batch] expected a size of at least 1, got ", size);
  return std::make_shared<BatchNode>(input, size, options.drop_remainder);
}

NodePtr make_rebatch_node(NodePtr input, std::vector<int64_t> sizes, const BatchOptions& options) {
  const bool valid = std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 0; }) &&
                     std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; });
  COHORT_CHECK_ARG(valid,
                   "[dataset.rebatch] expected sizes of at least 0, one of them above 0, got ",
                   bracketed(sizes));
  return std::make_shared<RebatchNode>(input, std::move(sizes), options.drop_remainder);
}

NodePtr make_unbatch_node(NodePtr input) { return std::make_shared<UnbatchNode>(input); }

}  // namespace cohort::internal
