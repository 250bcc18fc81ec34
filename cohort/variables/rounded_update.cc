// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/rounded_update.h"

#include <algorithm>
#include <array>

#include "cohort/base/check.h"

namespace cohort::internal::variables {
namespace {

using update_rules::kMaxSlots;

// Widened parameters, slots and gradients of so many elements stay in the first-level cache.
constexpr std::size_t kChunk = 1024;
using Chunk = std::array<float, kChunk>;

template <class T>
void widen(const T* from, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(from[i]);
}

template <class T>
void round_to(const Chunk& from, std::size_t n, T* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(from[i]);
}

template <class T>
void sum(std::span<const T* const> sources, std::size_t at, std::size_t n, float* out) {
  widen(sources[0] + at, n, out);
  for (const T* const source : sources.subspan(1)) {
    for (std::size_t i = 0; i < n; ++i) out[i] += static_cast<float>(source[at + i]);
  }
}

}  // namespace

template <class T>
requires is_rounded<T>
void rounded_update(const update_rules::Rule& rule, const update_rules::Target<T>& target,
                    std::span<const T* const> gradients, std::size_t begin, std::size_t end,
                    const update_rules::UpdateOptions& how) {
  COHORT_CHECK_ARG(!gradients.empty(), "[fused_update] expected one gradient or more, got none");
  COHORT_CHECK_ARG(target.param != nullptr, "[fused_update] expected a parameter arena, got null");
  const bool in_place = target.from_param == nullptr;
  const T* const from = in_place ? target.param : target.from_param;
  std::array<const T*, kMaxSlots> from_slots = {};
  for (std::size_t s = 0; s < kMaxSlots; ++s) {
    if (!update_rules::uses_slot(rule, s)) continue;
    from_slots[s] = in_place ? target.slots[s] : target.from_slots[s];
    COHORT_CHECK_ARG(target.slots[s] != nullptr && from_slots[s] != nullptr,
                     "[fused_update] expected slot ", s, ", got null");
  }
  alignas(64) Chunk parameters, gradient;
  alignas(64) std::array<Chunk, kMaxSlots> slots;
  const float* const source[] = {gradient.data()};
  for (std::size_t at = begin; at < end; at += kChunk) {
    const std::size_t n = std::min(kChunk, end - at);
    update_rules::Target<float> wide{.param = parameters.data(), .slots = {}};
    widen(from + at, n, parameters.data());
    sum(gradients, at, n, gradient.data());
    for (std::size_t s = 0; s < kMaxSlots; ++s) {
      if (from_slots[s] == nullptr) continue;
      widen(from_slots[s] + at, n, slots[s].data());
      wide.slots[s] = slots[s].data();
    }
    update_rules::fused_update<float>(rule, wide, source, 0, n, how);
    round_to(parameters, n, target.param + at);
    for (std::size_t s = 0; s < kMaxSlots; ++s) {
      if (from_slots[s] != nullptr) round_to(slots[s], n, target.slots[s] + at);
    }
  }
}

template <class T>
requires is_rounded<T>
double rounded_sum_of_squares(std::span<const T* const> sources, std::size_t begin,
                              std::size_t end) {
  COHORT_CHECK_ARG(!sources.empty(), "[sum_of_squares] expected one source or more, got none");
  // The blocks of float32: the same sum, however a range is divided at their borders.
  constexpr std::size_t kBlock = update_rules::kSquareSumBlock;
  alignas(64) std::array<float, kBlock> wide;
  const float* const source[] = {wide.data()};
  double total = 0;
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t n = std::min(kBlock, end - at);
    sum(sources, at, n, wide.data());
    total += update_rules::sum_of_squares<float>(source, 0, n);
  }
  return total;
}

#define COHORT_INSTANTIATE(T)                                                                \
  template void rounded_update<T>(const update_rules::Rule&, const update_rules::Target<T>&, \
                                  std::span<const T* const>, std::size_t, std::size_t,       \
                                  const update_rules::UpdateOptions&);                       \
  template double rounded_sum_of_squares<T>(std::span<const T* const>, std::size_t, std::size_t);
COHORT_INSTANTIATE(c10::Half)
COHORT_INSTANTIATE(c10::BFloat16)
#undef COHORT_INSTANTIATE

}  // namespace cohort::internal::variables
