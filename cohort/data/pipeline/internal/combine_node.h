// SPDX-License-Identifier: Apache-2.0
//
// Batches that a function makes of their elements: batch, padded_batch, ragged_batch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/rows/padding.h"

namespace cohort::internal {

/// Collects elements until a batch is full.
class CombineStream final : public ElementStream {
 public:
  CombineStream(NodePtr node, const CombineFunction& combine, std::unique_ptr<ElementStream> input,
                int64_t size, bool drop_remainder)
      : node_(std::move(node)),
        combine_(combine),
        input_(std::move(input)),
        size_(static_cast<std::size_t>(size)),
        drop_remainder_(drop_remainder) {}

  bool next(Element& out) override {
    Element part;
    // What is collected stays when the input throws: a reader may go on after an error.
    while (parts_.size() < size_ && input_->next(part)) parts_.push_back(std::move(part));
    if (parts_.empty() || (drop_remainder_ && parts_.size() < size_)) return false;
    const std::vector<Element> parts = std::exchange(parts_, {});
    out = combine_(parts);
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
  const NodePtr node_;
  const CombineFunction& combine_;  ///< Owned by node_.
  const std::unique_ptr<ElementStream> input_;
  const std::size_t size_;
  const bool drop_remainder_;
  std::vector<Element> parts_;
};

/// Batches that a function makes of their elements.
class CombineNode : public DatasetNode {
 public:
  CombineNode(std::string operation, ElementSpec spec, const NodePtr& input, int64_t size,
              bool drop_remainder, CombineFunction combine, std::string more_arguments = {})
      : DatasetNode(std::move(operation), std::move(spec), {input}),
        size_(size),
        drop_remainder_(drop_remainder),
        combine_(std::move(combine)),
        more_arguments_(std::move(more_arguments)) {}

  int64_t cardinality() const final {
    const int64_t n = input().cardinality();
    if (n < 0) return n;
    return n / size_ + (n % size_ != 0 && !drop_remainder_ ? 1 : 0);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CombineStream>(shared_from_this(), combine_,
                                           open_stream<Element>(input()), size_, drop_remainder_);
  }
  int64_t batch_rows() const final { return size_; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<CombineNode>(operation(), spec(), inputs[0], size_, drop_remainder_,
                                         combine_, more_arguments_);
  }
  std::string arguments() const final {
    return str_cat(size_, drop_remainder_ ? " whole" : "", more_arguments_);
  }

 protected:
  const int64_t size_;
  const bool drop_remainder_;

 private:
  const CombineFunction combine_;
  const std::string more_arguments_;  ///< What combine_ was told.
};

}  // namespace cohort::internal
