// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/mode.h"

#include <algorithm>
#include <iterator>
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

// Scopes that ended on other threads than theirs, which still have them on their stacks.
struct EndedScopes {
  std::mutex mutex;
  std::vector<std::unique_ptr<ScopeFrame>> scopes;  // guarded by mutex
};
EndedScopes& ended_scopes() {
  static auto& ended = *new EndedScopes();  // threads may ask while statics die
  return ended;
}

}  // namespace

const Mode& current_mode() {
  static constexpr Mode kOutside;
  settle_creators();
  return t_top != nullptr ? t_top->mode : kOutside;
}

std::shared_ptr<StrategyExtended> current_strategy() {
  StrategyExtended* strategy = current_mode().strategy;
  return strategy != nullptr ? strategy->shared_from_this() : nullptr;
}

const ModeFrame* top_frame() {
  settle_creators();
  return t_top;
}

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

void ScopeFrame::leave_ended() {
  std::vector<std::unique_ptr<ScopeFrame>> own;
  EndedScopes& ended = ended_scopes();
  {
    const std::scoped_lock lock(ended.mutex);
    const auto others = std::partition(ended.scopes.begin(), ended.scopes.end(),
                                       [](const auto& one) { return one->thread_ != &t_top; });
    std::move(others, ended.scopes.end(), std::back_inserter(own));
    ended.scopes.erase(others, ended.scopes.end());
    if (ended.scopes.empty()) set_creator_settler(nullptr);
  }
  for (const std::unique_ptr<ScopeFrame>& one : own) pop_frame(one->frame_);
}

void ScopeFrame::end(std::unique_ptr<ScopeFrame> scope, Order order) {
  if (scope == nullptr) return;
  if (scope->thread_ != &t_top) {
    COHORT_LOG(kError,
               "[strategy.scope] expected a scope to end on the thread where it began, got another "
               "one: the strategy is current there until that thread asks for it again");
    EndedScopes& ended = ended_scopes();
    const std::scoped_lock lock(ended.mutex);
    ended.scopes.push_back(std::move(scope));
    set_creator_settler(&ScopeFrame::leave_ended);
    return;
  }
  if (!pop_frame(scope->frame_) && order == Order::kReverse) {
    COHORT_LOG(kError,
               "[strategy.scope] expected scopes to end in the reverse order of their beginning, "
               "got an outer one first: nest their blocks");
  }
}

}  // namespace cohort::internal
