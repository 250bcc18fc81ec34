// SPDX-License-Identifier: Apache-2.0
//
// The base of nodes that hand on elements, or row numbers, in another number or order.
#pragma once

#include <memory>
#include <string>

#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {

/// A node whose stream `Derived::make<T>()` makes for T = Element and T = int64_t.
template <class Derived>
class OrderNode : public KeepingNode {
 public:
  using KeepingNode::KeepingNode;

  std::shared_ptr<const RowSource> row_source() const final { return input().row_source(); }
  std::unique_ptr<RowStream> make_row_stream() const final {
    return derived().template make<int64_t>();
  }
  std::unique_ptr<ElementStream> make_stream() const final {
    if (auto source = row_source()) return stream_rows(std::move(source), make_row_stream());
    return derived().template make<Element>();
  }
  bool gains_from_prefetch() const final { return input().gains_from_prefetch(); }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

}  // namespace cohort::internal::data
