// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/component.h"

#include "cohort/base/check.h"
#include "cohort/variables/internal/gradient_place.h"

namespace cohort::internal::variables {

bool has_only_handles(const Tensor& tensor, uint32_t handles) {
  // Letting go of these makes what others did before they let go visible here: counts are read
  // without any order.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const Tensor handle = tensor;
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const c10::Storage storage = tensor.storage();
  return handle.use_count() == handles + 1 && storage.use_count() == 2;
}

const std::shared_ptr<Arena>& Component::arena() const {
  static const std::shared_ptr<Arena> none;
  return range ? range->arena : none;
}

Tensor Component::free_gradient_view(GradientBuffer& buffer) {
  Arena& arena = *range->arena;
  for (auto& [owner, view] : gradient_views) {
    if (owner != &buffer) continue;
    if (!has_only_handles(view, 1)) return {};
    if (!is_as_made(view, tensor, arena.gradient_data(buffer, range->offset))) {
      view = arena.gradient_view(buffer, range, shape_of(tensor));
    }
    return view;
  }
  gradient_views.emplace_back(&buffer, arena.gradient_view(buffer, range, shape_of(tensor)));
  return gradient_views.back().second;
}

GradientBuffer* Component::buffer_of(const Tensor& gradient) const {
  for (const auto& [owner, view] : gradient_views) {
    if (view.is_same(gradient)) return owner;
  }
  return nullptr;
}

LocalImpl& local_impl(VariableImpl& variable) {
  LocalImpl* const local = variable.local();
  COHORT_CHECK(local != nullptr, "expected a variable in this process's memory, got ",
               label(variable), " of ", owner_of(variable));
  return *local;
}

bool is_in_arena(VariableImpl& variable, const Tensor& gradient) {
  LocalImpl* const local = variable.local();
  return local != nullptr && local->leaf().buffer_of(gradient) != nullptr;
}

}  // namespace cohort::internal::variables
