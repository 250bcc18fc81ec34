// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/mode.h"

#include <utility>

#include "cohort/strategy/strategy_extended.h"

namespace cohort::internal {
namespace {

Mode& thread_mode() {
  thread_local Mode mode;
  return mode;
}

std::shared_ptr<VariableCreator> creator_of(const std::shared_ptr<StrategyExtended>& strategy) {
  return strategy ? strategy->variable_creator() : nullptr;
}

}  // namespace

const Mode& current_mode() { return thread_mode(); }

ModeGuard::ModeGuard(ModeKind kind, std::shared_ptr<StrategyExtended> strategy)
    : creator_(creator_of(strategy)) {
  before_ = std::exchange(thread_mode(), Mode{kind, std::move(strategy)});
}

ModeGuard::~ModeGuard() { thread_mode() = std::move(before_); }

}  // namespace cohort::internal
