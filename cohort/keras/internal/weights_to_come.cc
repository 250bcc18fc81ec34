// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/weights_to_come.h"

#include <set>

namespace cohort::keras::internal {
namespace {
thread_local WeightsToCome* t_weights_to_come = nullptr;
}  // namespace

WeightsToCome::WeightsToCome(bool come)
    : outer_(std::exchange(t_weights_to_come, come ? this : nullptr)) {}
WeightsToCome::~WeightsToCome() { t_weights_to_come = outer_; }

WeightsToCome* WeightsToCome::here() { return t_weights_to_come; }

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
