// SPDX-License-Identifier: Apache-2.0
//
// unbatch and rebatch: rows out of batches, and batches of other sizes.
#include <algorithm>
#include <functional>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/core/internal/rows/ragged.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

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

class UnbatchNode final : public StepNode<UnbatchNode, NoParams> {
 public:
  UnbatchNode(std::vector<NodePtr> inputs, NoParams params)
      : StepNode(params, "unbatch", row_spec("[dataset.unbatch]", inputs[0]->spec()), inputs) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    const int64_t rows = input().spec().rows();
    if (n == 0 || n == kInfiniteCardinality) return n;
    return n < 0 || rows == kUnknownDim ? kUnknownCardinality : saturated_product(n, rows);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<UnbatchStream>(open_stream<Element>(input()));
  }
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

struct RebatchParams {
  std::vector<int64_t> sizes;
  bool drop_remainder;

  int64_t common_size() const {
    const bool equal =
        std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
    return equal ? sizes.front() : kUnknownDim;
  }
};

class RebatchNode final : public StepNode<RebatchNode, RebatchParams> {
 public:
  RebatchNode(std::vector<NodePtr> inputs, RebatchParams params)
      : StepNode(params, "rebatch",
                 batched_spec(row_spec("[dataset.rebatch]", inputs[0]->spec()),
                              params.drop_remainder ? params.common_size() : kUnknownDim),
                 inputs) {}

  /// Known where every batch of the input has equally many rows (TensorFlow never knows).
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    if (n == 0 || n == kInfiniteCardinality) return n;
    const int64_t size = params().common_size();
    const int64_t input_rows = input().spec().rows();
    if (n < 0 || size == kUnknownDim || input_rows == kUnknownDim) return kUnknownCardinality;
    const int64_t rows = saturated_product(n, input_rows);
    return rows / size + (rows % size != 0 && !params().drop_remainder ? 1 : 0);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<RebatchStream>(shared_from_this(), params().sizes,
                                           params().drop_remainder);
  }
  bool gains_from_prefetch() const override { return input().gains_from_prefetch(); }
  int64_t batch_rows() const override { return params().common_size(); }
  std::string arguments() const override {
    return str_cat(bracketed(params().sizes), params().drop_remainder ? " whole" : "");
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::unbatch() const {
  return internal::data::with_step<internal::data::UnbatchNode>(node());
}

Dataset Dataset::rebatch(std::vector<int64_t> sizes, BatchOptions options) const {
  const bool valid = std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 0; }) &&
                     std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; });
  COHORT_CHECK_ARG(valid,
                   "[dataset.rebatch] expected sizes of at least 0, one of them above 0, got ",
                   bracketed(sizes));
  return internal::data::with_step<internal::data::RebatchNode>(
      node(), internal::data::RebatchParams{std::move(sizes), options.drop_remainder});
}
Dataset Dataset::rebatch(int64_t size, BatchOptions options) const {
  return rebatch(std::vector<int64_t>{size}, options);
}

}  // namespace cohort::data
