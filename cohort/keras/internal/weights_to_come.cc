// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/weights_to_come.h"

#include <set>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {
thread_local WeightsToCome* t_weights_to_come = nullptr;
constexpr uint64_t kMostWidening = 8;
constexpr uint64_t kOfNoFile = uint64_t{256} << 20;
}  // namespace

// Values may be wider in the model than in the file, and some, as states, are in no file.
WeightsToCome::WeightsToCome(bool come, uint64_t bytes)
    : outer_(std::exchange(t_weights_to_come, come ? this : nullptr)),
      most_(bytes > kAny / kMostWidening ? kAny : kMostWidening * bytes + kOfNoFile) {}
WeightsToCome::~WeightsToCome() { t_weights_to_come = outer_; }

WeightsToCome* WeightsToCome::here() { return t_weights_to_come; }

void WeightsToCome::expect(const std::string& name, const Shape& shape, DType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) bytes = kAny;
  }
  if (__builtin_add_overflow(expected_, bytes, &expected_)) expected_ = kAny;
  COHORT_CHECK_ARG(expected_ <= most_, "expected a model whose weights are in the file, got ", name,
                   " of shape ", bracketed(shape), ", for which the file is too small");
}

void WeightsToCome::add(const Variable& variable, std::function<void()> draw) {
  weights_.emplace_back(variable, std::move(draw));
}

void WeightsToCome::draw_all_but(std::span<const Variable> filled) const {
  std::set<const void*> known;
  for (const Variable& v : filled) known.insert(&v.impl());
  for (const auto& [variable, draw] : weights_) {
    if (!known.contains(&variable.impl())) draw();
  }
}

}  // namespace cohort::keras::internal
