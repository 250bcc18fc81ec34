// SPDX-License-Identifier: Apache-2.0
//
// Scopes, and the questions that depend on them.
#include "cohort/strategy/scope.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/internal/mode.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

using internal::current_mode;
using internal::Mode;
using internal::ModeKind;
using internal::ScopeFrame;

namespace {

const std::shared_ptr<internal::LocalStrategy>& default_strategy() {
  return internal::LocalStrategy::default_instance();
}

// The variables of a real strategy's scope inside the default strategy's.
class MixedCreator : public internal::VariableCreator {
 public:
  std::shared_ptr<internal::VariableImpl> create(const InitialValue&,
                                                 const VariableOptions& options) override {
    const StrategyExtended* strategy = current_mode().strategy;
    throw FailedPrecondition(
        str_cat("[variable] expected one strategy around variable \"", options.name, "\", got ",
                strategy != nullptr ? strategy->description() : "another one",
                " inside the default strategy's scope: strategies cannot be mixed; leave the scope "
                "of get_strategy() first"));
  }
};

internal::VariableCreator* mixed_creator() {
  static MixedCreator creator;
  return &creator;
}

// The mode that set_strategy installed for the whole thread.
struct GlobalMode {
  std::unique_ptr<ScopeFrame> frame;
  const internal::ModeFrame* top = nullptr;  // what top_frame() is right behind it
  ~GlobalMode() { ScopeFrame::end(std::move(frame)); }
};
thread_local GlobalMode t_global;

std::unique_ptr<ScopeFrame> enter(const std::shared_ptr<StrategyExtended>& strategy) {
  const Mode& mode = current_mode();
  if (strategy == default_strategy()) {
    return std::make_unique<ScopeFrame>(Mode{.kind = mode.kind, .default_scope = true}, strategy);
  }
  Mode inside{.kind = ModeKind::kCrossReplica,
              .strategy = strategy.get(),
              .creator = strategy->variable_creator().get(),
              .default_scope = mode.default_scope};
  if (mode.default_scope) inside.creator = mixed_creator();
  return std::make_unique<ScopeFrame>(inside, strategy);
}

}  // namespace

Scope::Scope(const std::shared_ptr<StrategyExtended>& strategy) {
  static constexpr const char* kOperation = "[strategy.scope] ";
  const Mode& mode = current_mode();
  COHORT_CHECK_STATE(strategy != default_strategy() || mode.strategy == nullptr, kOperation,
                     "expected no other strategy's scope around the default strategy's, got ",
                     mode.strategy != nullptr ? mode.strategy->description() : "",
                     "; leave that scope first");
  strategy->check_not_mixed(kOperation);
  COHORT_CHECK_STATE(mode.kind != ModeKind::kReplica, kOperation,
                     "expected cross-replica context, got a replica: inside strategy.run use "
                     "merge_call");
  frame_ = enter(strategy);
}

Scope::~Scope() { ScopeFrame::end(std::move(frame_)); }
Scope::Scope(Scope&& other) noexcept = default;
Scope& Scope::operator=(Scope&& other) noexcept {
  if (this == &other) return *this;
  // The new one began inside the old one: that is the order here.
  ScopeFrame::end(std::move(frame_), ScopeFrame::Order::kAny);
  frame_ = std::move(other.frame_);
  return *this;
}

Strategy get_strategy() {
  auto strategy = internal::current_strategy();
  return Strategy(strategy ? std::move(strategy) : default_strategy());
}

bool has_strategy() { return current_mode().strategy != nullptr; }

bool in_cross_replica_context() { return current_mode().kind == ModeKind::kCrossReplica; }

ReplicaContext get_replica_context() {
  switch (current_mode().kind) {
    case ModeKind::kCrossReplica:
      return ReplicaContext();
    case ModeKind::kReplica:
      return ReplicaContext(internal::current_strategy(), current_replica());
    case ModeKind::kDefault:
      break;
  }
  return ReplicaContext(default_strategy(), 0);
}

void set_strategy(const std::optional<Strategy>& strategy) {
  const bool outside = internal::top_frame() == (t_global.frame ? t_global.top : nullptr);
  COHORT_CHECK_STATE(outside && internal::enclosing_replica_group() == nullptr,
                     "[set_strategy] expected to be outside of every scope, got a call inside one; "
                     "move it out of the scope's block");
  ScopeFrame::end(std::move(t_global.frame));
  if (!strategy || *strategy == Strategy(default_strategy())) return;
  t_global.frame = enter(strategy->extended().shared_from_this());
  t_global.top = internal::top_frame();
}

}  // namespace cohort
