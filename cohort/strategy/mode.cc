// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/mode.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/base/logging.h"
#include "cohort/strategy/strategy_extended.h"

namespace cohort::internal {
namespace {

// A plain pointer, so that guards may still end while a thread's other objects die.
constinit thread_local ModeFrame* t_top = nullptr;

// In reach of a pointer: what is logged already is nothing for a leak checker to report.
void keep_for_ever(std::unique_ptr<ScopeFrame> scope) {
  static auto& mutex = *new std::mutex();
  static auto& kept = *new std::vector<std::unique_ptr<ScopeFrame>>();
  const std::scoped_lock lock(mutex);
  kept.push_back(std::move(scope));
}

}  // namespace

const Mode& current_mode() {
  static constexpr Mode kOutside;
  return t_top != nullptr ? t_top->mode : kOutside;
}

std::shared_ptr<StrategyExtended> current_strategy() {
  StrategyExtended* strategy = current_mode().strategy;
  return strategy != nullptr ? strategy->shared_from_this() : nullptr;
}

const ModeFrame* top_frame() { return t_top; }

void push_frame(ModeFrame& frame) {
  frame.below = std::exchange(t_top, &frame);
  frame.creator_before = exchange_variable_creator(frame.mode.creator);
}

bool pop_frame(ModeFrame& frame) {
  if (t_top == &frame) {
    t_top = frame.below;
    exchange_variable_creator(frame.creator_before);
    return true;
  }
  for (ModeFrame* above = t_top; above != nullptr; above = above->below) {
    if (above->below != &frame) continue;
    above->below = frame.below;
    above->creator_before = frame.creator_before;
    break;
  }
  return false;
}

ScopeFrame::ScopeFrame(const Mode& mode, std::shared_ptr<StrategyExtended> owner)
    : frame_{.mode = mode}, owner_(std::move(owner)), thread_(&t_top) {
  push_frame(frame_);
}

void ScopeFrame::end(std::unique_ptr<ScopeFrame> scope) {
  if (scope == nullptr) return;
  if (scope->thread_ != &t_top) {
    COHORT_LOG(kError,
               "[strategy.scope] expected a scope to end on the thread where it began, got another "
               "one: the strategy stays current there");
    keep_for_ever(std::move(scope));  // the other thread's stack still leads through it
    return;
  }
  if (!pop_frame(scope->frame_)) {
    COHORT_LOG(kError,
               "[strategy.scope] expected scopes to end in the reverse order of their beginning, "
               "got an outer one first: nest their blocks");
  }
}

}  // namespace cohort::internal
