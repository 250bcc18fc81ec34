// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of verbs have in common: parameters in one place, and copies over other inputs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/dataset.h"

namespace cohort::internal::data {

/// The base of nodes that hand on elements of their one input, if not all of them or in that order.
class KeepingNode : public DatasetNode {
 public:
  KeepingNode(std::string operation, const std::vector<NodePtr>& inputs)
      : DatasetNode(std::move(operation), inputs.front()->spec(), inputs) {}
  int64_t cardinality() const override { return input().cardinality(); }
  int64_t batch_rows() const final { return input().batch_rows(); }
};

/// A node that the constructor Derived(inputs, params) makes: `params` are all that tells it from
/// others of its class. `Base` gets the further arguments of the constructor here.
template <class Derived, class Params, class Base = DatasetNode>
class StepNode : public Base {
 public:
  const Params& params() const { return params_; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const final {
    return std::make_shared<Derived>(std::move(inputs), params_);
  }

 protected:
  template <class... Args>
  explicit StepNode(Params params, Args&&... base)
      : Base(std::forward<Args>(base)...), params_(std::move(params)) {}
  /// For the node's streams, which read its parameters.
  std::shared_ptr<const Derived> self() const {
    return std::static_pointer_cast<const Derived>(this->shared_from_this());
  }

 private:
  const Params params_;
};

struct NoParams {};

/// `input` with a step behind it.
template <class Node, class Params = NoParams>
Dataset with_step(const NodePtr& input, Params params = {}) {
  return Dataset(std::make_shared<Node>(std::vector{input}, std::move(params)));
}

}  // namespace cohort::internal::data
