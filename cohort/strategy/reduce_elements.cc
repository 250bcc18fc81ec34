// SPDX-License-Identifier: Apache-2.0
//
// Reductions and joins of the batches that distributed datasets give.
#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/strategy/internal/reduce.h"

namespace cohort::internal {
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

void check_joins_here(const char* operation, const char* what, const Reach& reach) {
  if (reach.others == nullptr) return;
  throw Unimplemented(str_cat(operation, " expected tensors to join between workers, got ", what,
                              "; local_results() has those of this worker"));
}

}  // namespace

Element reduce_elements(ReduceOp op, std::span<const Element> elements, const Axes& axes,
                        const Reach& reach) {
  static constexpr const char* kOperation = "[strategy.reduce]";
  COHORT_CHECK_ARG(!has_ragged(elements.front()), kOperation,
                   " expected tensors, got rows of unlike lengths: ", elements.front().spec());
  return combine_elements(elements, kOperation, [&](std::span<const Element> parts) -> Element {
    return reduce_tensors(op, tensors_of(parts), axes, reach);
  });
}

Element gather_elements(std::span<const Element> elements, int64_t axis, const Reach& reach) {
  static constexpr const char* kOperation = "[strategy.gather]";
  if (has_ragged(elements.front())) {
    check_joins_here(kOperation, "rows of unlike lengths", reach);
    if (axis == 0) return concatenate_elements(elements, kOperation);
    throw Unimplemented(
        str_cat(kOperation, " expected axis 0 for rows of unlike lengths, got ", axis));
  }
  return combine_elements(elements, kOperation, [&](std::span<const Element> parts) -> Element {
    if (!parts.front().is_string()) return gather_tensors(tensors_of(parts), axis, reach);
    check_joins_here(kOperation, "strings", reach);
    if (axis == 0) return concatenate_elements(parts, kOperation);
    throw Unimplemented(str_cat(kOperation, " expected axis 0 for strings, got ", axis));
  });
}

}  // namespace cohort::internal
