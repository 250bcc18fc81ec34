// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/thread_context.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::runtime {
namespace {

// Where every stack begins; nobody writes it.
constinit ContextNode g_outside;

// Scopes that ended on other threads than theirs, which still have them on their stacks.
struct EndedScopes {
  base::Mutex mutex;
  std::vector<std::unique_ptr<ScopeFrame>> scopes COHORT_GUARDED_BY(mutex);
};
EndedScopes& ended_scopes() {
  // Threads may ask while statics die.
  static auto& ended = *new EndedScopes();
  [[maybe_unused]] static const bool kept = base::keep_free_over_fork(ended.mutex);
  return ended;
}

}  // namespace

// A plain pointer, so that guards may still end while a thread's other objects die.
constinit thread_local ThreadSlots t_slots{.top = &g_outside};
constinit std::atomic<bool> scopes_ended_elsewhere{false};

bool ContextFrame::take_out(ContextNode& node) {
  if (t_slots.top == &node) {
    t_slots.top = node.below;
    return true;
  }
  for (ContextNode* above = t_slots.top; above != nullptr; above = above->below) {
    if (above->below != &node) continue;
    above->below = node.below;
    break;
  }
  return false;
}

ScopeFrame::ScopeFrame(const ThreadContext& context, std::shared_ptr<const void> owner)
    : node_{context, t_slots.top}, owner_(std::move(owner)), thread_(&t_slots) {
  t_slots.top = &node_;
}
ScopeFrame::~ScopeFrame() = default;

const void* ScopeFrame::innermost() {
  current_context();
  return t_slots.top != &g_outside ? t_slots.top : nullptr;
}

void leave_ended_scopes() {
  std::vector<std::unique_ptr<ScopeFrame>> own;
  EndedScopes& ended = ended_scopes();
  {
    const base::MutexLock lock(ended.mutex);
    const auto others = std::partition(ended.scopes.begin(), ended.scopes.end(),
                                       [](const auto& one) { return one->thread_ != &t_slots; });
    std::move(others, ended.scopes.end(), std::back_inserter(own));
    ended.scopes.erase(others, ended.scopes.end());
    if (ended.scopes.empty()) scopes_ended_elsewhere.store(false, std::memory_order_release);
  }
  for (const std::unique_ptr<ScopeFrame>& one : own) ContextFrame::take_out(one->node_);
}

void ScopeFrame::end(std::unique_ptr<ScopeFrame> scope, Order order) {
  if (scope == nullptr) return;
  if (scope->thread_ != &t_slots) {
    COHORT_LOG(kError,
               "[strategy.scope] expected a scope to end on the thread where it began, got another "
               "one: the strategy is current there until that thread asks for it again");
    EndedScopes& ended = ended_scopes();
    const base::MutexLock lock(ended.mutex);
    ended.scopes.push_back(std::move(scope));
    scopes_ended_elsewhere.store(true, std::memory_order_release);
    return;
  }
  if (!ContextFrame::take_out(scope->node_) && order == Order::kReverse) {
    COHORT_LOG(kError,
               "[strategy.scope] expected scopes to end in the reverse order of their beginning, "
               "got an outer one first: nest their blocks");
  }
}

}  // namespace cohort::internal::runtime
