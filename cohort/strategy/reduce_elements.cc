// SPDX-License-Identifier: Apache-2.0
//
// Reductions and joins of the batches that distributed datasets give.
#include "cohort/collectives/worker_collectives.h"
#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/strategy/internal/reduce.h"

namespace cohort::internal::strategy {
namespace {

std::vector<Tensor> tensors_of(std::span<const Element> parts) {
  std::vector<Tensor> out;
  for (const Element& part : parts) out.push_back(part.tensor());
  return out;
}

bool has_ragged(const Element& element) {
  if (!element.is_tuple()) return false;
  if (element.is_ragged()) return true;
  for (std::size_t i = 0; i < element.size(); ++i) {
    if (has_ragged(element[i])) return true;
  }
  return false;
}

// Strings and rows of unlike lengths: workers send each other what they have as it is saved.
Element concatenate_all(std::span<const Element> parts, const char* operation, int64_t axis,
                        const char* what, const Reach& reach) {
  if (axis != 0) {
    throw Unimplemented(str_cat(operation, " expected axis 0 for ", what, ", got ", axis));
  }
  Element here = data::concatenate_elements(parts, operation);
  if (reach.others == nullptr) return here;
  data::StateWriter state;
  state.put_element(here);
  std::vector<Element> all;
  for (const std::string& text :
       collectives::gather_texts(*reach.others, operation, std::move(state).take())) {
    all.push_back(data::StateReader(text).get_element());
  }
  return data::concatenate_elements(all, operation);
}

}  // namespace

Element reduce_elements(ReduceOp op, std::span<const Element> elements, const Axes& axes,
                        const Reach& reach) {
  static constexpr const char* kOperation = "[strategy.reduce]";
  COHORT_CHECK_ARG(!has_ragged(elements.front()), kOperation,
                   " expected tensors, got rows of unlike lengths: ", elements.front().spec());
  return data::combine_elements(elements, kOperation,
                                [&](std::span<const Element> parts) -> Element {
                                  return reduce_tensors(op, tensors_of(parts), axes, reach);
                                });
}

Element gather_elements(std::span<const Element> elements, int64_t axis, const Reach& reach) {
  static constexpr const char* kOperation = "[strategy.gather]";
  if (has_ragged(elements.front())) {
    return concatenate_all(elements, kOperation, axis, "rows of unlike lengths", reach);
  }
  return data::combine_elements(elements, kOperation,
                                [&](std::span<const Element> parts) -> Element {
                                  if (!parts.front().is_string())
                                    return gather_tensors(tensors_of(parts), axis, reach);
                                  return concatenate_all(parts, kOperation, axis, "strings", reach);
                                });
}

}  // namespace cohort::internal::strategy
