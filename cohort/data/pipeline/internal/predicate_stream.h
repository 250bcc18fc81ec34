// SPDX-License-Identifier: Apache-2.0
//
// What filter and take_while share: a predicate over counted elements.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/pipeline/internal/counted_stream.h"

namespace cohort::internal::data {

using ElementPredicate = std::function<bool(const Element&)>;

class PredicateStream : public CountedStream<Element> {
 public:
  /// Owns: `predicate` is the node's.
  PredicateStream(NodePtr node, const ElementPredicate& predicate,
                  std::unique_ptr<ElementStream> input)
      : CountedStream(std::move(input), 0), node_(std::move(node)), predicate_(predicate) {}

 protected:
  /// Errors: what the predicate throws, with the element's number and the place before the text.
  bool holds(const Element& element, int64_t index) const {
    try {
      return predicate_(element);
    } catch (...) {
      rethrow_with_context(str_cat(node_->tag(), " element ", index, " of ", node_->path()));
    }
  }

 private:
  const NodePtr node_;
  const ElementPredicate& predicate_;
};

}  // namespace cohort::internal::data
