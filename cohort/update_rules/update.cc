// SPDX-License-Identifier: Apache-2.0
#include "cohort/update_rules/update.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/update_rules/internal/kernels.h"
#include "cohort/update_rules/internal/packed_rule.h"

namespace cohort::update_rules {
namespace {

template <class T>
const internal::KernelsOf<T>& kernels_for() {
  if constexpr (std::is_same_v<T, float>) {
    return internal::kernels().of_float;
  } else {
    return internal::kernels().of_double;
  }
}

// All but begin and end.
template <class T>
internal::UpdateCall<T> call_of(const Rule& rule, const Target<T>& target,
                                std::span<const T* const> gradients, const UpdateOptions& options) {
  COHORT_CHECK_ARG(target.param != nullptr, "[fused_update] expected a parameter arena, got null");
  internal::UpdateCall<T> call;
  const internal::PackedRule packed = internal::packed_rule(rule);
  call.kind = packed.kind;
  std::copy(std::begin(packed.coefficients), std::end(packed.coefficients), call.coefficients);
  const bool in_place = target.from_param == nullptr;
  call.param = target.param;
  call.from_param = in_place ? target.param : target.from_param;
  for (std::size_t i = 0; i < kMaxSlots; ++i) {
    const bool used = uses_slot(rule, i);
    const T* const from = in_place ? target.slots[i] : target.from_slots[i];
    COHORT_CHECK_ARG(!used || (target.slots[i] != nullptr && from != nullptr),
                     "[fused_update] expected slot ", i, ", got null");
    call.slots[i] = used ? target.slots[i] : nullptr;
    call.from_slots[i] = used ? from : nullptr;
  }
  call.sources = gradients.data();
  call.source_count = gradients.size();
  call.gradient_scale = options.gradient_scale;
  call.clip_value = options.clip_value;
  call.weight_decay = options.weight_decay;
  return call;
}

}  // namespace

template <class T>
void fused_update(const Rule& rule, const Target<T>& target, std::span<const T* const> gradients,
                  std::size_t begin, std::size_t end, const UpdateOptions& options) {
  COHORT_CHECK_ARG(!gradients.empty(), "[fused_update] expected one gradient or more, got none");
  COHORT_CHECK_ARG(begin <= end, "[fused_update] expected begin <= end, got ", begin, " and ", end);
  if (begin == end) return;
  internal::UpdateCall<T> call = call_of<T>(rule, target, gradients, options);
  call.begin = begin;
  call.end = end;
  kernels_for<T>().update(call);
}

template <class T>
void fused_update_rows(const Rule& rule, const Target<T>& table, const T* gradients,
                       std::span<const int64_t> rows, std::size_t width,
                       const UpdateOptions& options) {
  if (rows.empty() || width == 0) return;
  COHORT_CHECK_ARG(gradients != nullptr, "[fused_update_rows] expected gradients, got null");
  const T* const sources[] = {gradients};
  const internal::UpdateCall<T> call = call_of<T>(rule, table, sources, options);
  kernels_for<T>().update_rows(call, rows.data(), rows.size(), width);
}

template <class T>
void update(const Rule& rule, std::span<T> param, std::initializer_list<std::span<T>> slots,
            std::span<const T> gradient, const UpdateOptions& options) {
  COHORT_CHECK_ARG(gradient.size() == param.size(), "[update] expected a gradient of ",
                   param.size(), " elements, got ", gradient.size());
  COHORT_CHECK_ARG(slots.size() <= kMaxSlots, "[update] expected at most ", kMaxSlots,
                   " slots, got ", slots.size());
  Target<T> target{.param = param.data(), .slots = {}};
  std::size_t i = 0;
  for (const std::span<T>& slot : slots) {
    COHORT_CHECK_ARG(!uses_slot(rule, i) || slot.size() == param.size(), "[update] expected slot ",
                     i, " of ", param.size(), " elements, got ", slot.size());
    target.slots[i++] = slot.data();
  }
  const T* const sources[] = {gradient.data()};
  fused_update<T>(rule, target, sources, 0, param.size(), options);
}

template <class T>
void block_square_sums(std::span<const T* const> sources, std::size_t size, std::size_t first_block,
                       std::span<double> out) {
  COHORT_CHECK_ARG(!sources.empty(), "[block_square_sums] expected one source or more, got none");
  COHORT_CHECK_ARG(first_block + out.size() <= square_sum_blocks(size),
                   "[block_square_sums] expected at most ", square_sum_blocks(size),
                   " blocks, got up to ", first_block + out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t begin = (first_block + i) * kSquareSumBlock;
    out[i] = kernels_for<T>().squares(sources.data(), sources.size(), begin,
                                      std::min(begin + kSquareSumBlock, size));
  }
}

template <class T>
double sum_of_squares(std::span<const T* const> sources, std::size_t begin, std::size_t end) {
  COHORT_CHECK_ARG(!sources.empty(), "[sum_of_squares] expected one source or more, got none");
  double total = 0;
  for (std::size_t at = begin; at < end; at += kSquareSumBlock) {
    total += kernels_for<T>().squares(sources.data(), sources.size(), at,
                                      std::min(at + kSquareSumBlock, end));
  }
  return total;
}

double global_norm_clip_scale(double norm, double clip_norm) {
  if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
  return norm > clip_norm ? clip_norm / norm : 1.0;
}

double norm_clip_scale(double norm, double clip_norm) {
  // The comparison this way round lets a NaN through.
  return norm <= clip_norm ? 1.0 : clip_norm / norm;
}

#define COHORT_INSTANTIATE(T)                                                                      \
  template void fused_update<T>(const Rule&, const Target<T>&, std::span<const T* const>,          \
                                std::size_t, std::size_t, const UpdateOptions&);                   \
  template void fused_update_rows<T>(const Rule&, const Target<T>&, const T*,                      \
                                     std::span<const int64_t>, std::size_t, const UpdateOptions&); \
  template void update<T>(const Rule&, std::span<T>, std::initializer_list<std::span<T>>,          \
                          std::span<const T>, const UpdateOptions&);                               \
  template void block_square_sums<T>(std::span<const T* const>, std::size_t, std::size_t,          \
                                     std::span<double>);                                           \
  template double sum_of_squares<T>(std::span<const T* const>, std::size_t, std::size_t);
COHORT_INSTANTIATE(float)
COHORT_INSTANTIATE(double)
#undef COHORT_INSTANTIATE

}  // namespace cohort::update_rules
