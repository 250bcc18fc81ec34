// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/keep_masks.h"

#include <algorithm>
#include <span>

#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras::internal {

KeepMasks::KeepMasks(std::optional<uint64_t> seed)
    : seed_(seed), operation_(seed ? 1 : cohort::internal::next_operation_number()) {}

Tensor KeepMasks::draw(const Shape& shape, double rate, const Tensor& like) {
  const uint64_t step = next_step(current_replica());
  const cohort::internal::RandomStream stream(seed_.value_or(cohort::internal::current_seed()),
                                              operation_, step,
                                              cohort::internal::current_global_replica());
  const bool wide = like.scalar_type() == kFloat64;
  Tensor out = empty(shape, wide ? kFloat64 : kFloat32);
  const auto size = static_cast<std::size_t>(out.numel());
  if (wide) {
    cohort::internal::fill_keep_mask(stream, rate, std::span(out.data_ptr<double>(), size));
  } else {
    cohort::internal::fill_keep_mask(stream, rate, std::span(out.data_ptr<float>(), size));
  }
  return out.to(like.options());
}

TrackedValue KeepMasks::tracked() {
  return {.name = "random",
          .dtype = kInt64,
          .shape = Shape{3},
          .read = [this] { return position(); },
          .write = [this](const Tensor& x) { set_position(x); },
          .identity = &operation_};
}

uint64_t KeepMasks::next_step(int replica) {
  const cohort::internal::MutexLock lock(mutex_);
  const std::size_t i = static_cast<std::size_t>(replica + 1);
  if (i >= steps_.size()) steps_.resize(i + 1, first_step_);
  return steps_[i]++;
}

Tensor KeepMasks::position() const {
  const cohort::internal::MutexLock lock(mutex_);
  uint64_t draws = first_step_;
  for (const uint64_t step : steps_) draws = std::max(draws, step);
  const uint64_t seed = seed_.value_or(cohort::internal::current_seed());
  return from_vector<int64_t>(
      {static_cast<int64_t>(seed), static_cast<int64_t>(operation_), static_cast<int64_t>(draws)},
      {3});
}

void KeepMasks::set_position(const Tensor& position) {
  const std::vector<int64_t> numbers = to_vector<int64_t>(position);
  const cohort::internal::MutexLock lock(mutex_);
  seed_ = static_cast<uint64_t>(numbers[0]);
  operation_ = static_cast<uint64_t>(numbers[1]);
  first_step_ = static_cast<uint64_t>(numbers[2]);
  steps_.clear();
}

}  // namespace cohort::keras::internal
