// SPDX-License-Identifier: Apache-2.0
//
// Scopes, and the questions that depend on them.
#include "cohort/strategy/scope.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategy.h"
#include "cohort/variables/variable_impl.h"

namespace cohort {

using internal::runtime::ContextKind;
using internal::runtime::current_context;
using internal::runtime::ScopeFrame;
using internal::runtime::ThreadContext;

namespace {

const std::shared_ptr<internal::strategy::LocalStrategy>& default_strategy() {
  return internal::strategy::LocalStrategy::default_instance();
}

// The variables of a real strategy's scope inside the default strategy's.
class MixedCreator : public internal::variables::VariableCreator {
 public:
  std::shared_ptr<internal::variables::VariableImpl> create(
      const InitialValue&, const VariableOptions& options) override {
    const StrategyExtended* strategy = current_context().strategy;
    throw FailedPrecondition(
        str_cat("[variable] expected one strategy around variable \"", options.name, "\", got ",
                strategy != nullptr ? strategy->description() : "another one",
                " inside the default strategy's scope: strategies cannot be mixed; leave the scope "
                "of get_strategy() first"));
  }
};

internal::variables::VariableCreator* mixed_creator() {
  static MixedCreator creator;
  return &creator;
}

// The scope that set_strategy entered for the whole thread.
struct GlobalScope {
  std::unique_ptr<ScopeFrame> frame;
  const void* innermost = nullptr;  // what ScopeFrame::innermost() is right behind it
  ~GlobalScope() { ScopeFrame::end(std::move(frame)); }
};
thread_local GlobalScope t_global;

std::unique_ptr<ScopeFrame> enter(const std::shared_ptr<StrategyExtended>& strategy) {
  ThreadContext context = current_context();
  if (strategy == default_strategy()) {
    context.default_scope = true;
    context.creator = nullptr;
  } else {
    strategy->make_current(context);
    context.kind = ContextKind::kCrossReplica;
    if (context.default_scope) context.creator = mixed_creator();
  }
  return std::make_unique<ScopeFrame>(context, strategy);
}

}  // namespace

Scope::Scope(const std::shared_ptr<StrategyExtended>& strategy) {
  static constexpr const char* kOperation = "[strategy.scope] ";
  const ThreadContext& here = current_context();
  COHORT_CHECK_STATE(strategy != default_strategy() || here.strategy == nullptr, kOperation,
                     "expected no other strategy's scope around the default strategy's, got ",
                     here.strategy != nullptr ? here.strategy->description() : "",
                     "; leave that scope first");
  strategy->check_not_mixed(kOperation);
  COHORT_CHECK_STATE(here.kind != ContextKind::kReplica, kOperation,
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
  auto strategy = internal::strategy::current_strategy();
  return Strategy(strategy ? std::move(strategy) : default_strategy());
}

bool has_strategy() { return current_context().strategy != nullptr; }

bool in_cross_replica_context() { return current_context().kind == ContextKind::kCrossReplica; }

ReplicaContext get_replica_context() {
  switch (current_context().kind) {
    case ContextKind::kCrossReplica:
      return ReplicaContext();
    case ContextKind::kReplica:
      return ReplicaContext(internal::strategy::current_strategy(), current_replica());
    case ContextKind::kDefault:
      break;
  }
  return ReplicaContext(default_strategy(), 0);
}

void set_strategy(const std::optional<Strategy>& strategy) {
  const bool outside = ScopeFrame::innermost() == (t_global.frame ? t_global.innermost : nullptr);
  COHORT_CHECK_STATE(outside && internal::runtime::enclosing_replica_group() == nullptr,
                     "[set_strategy] expected to be outside of every scope, got a call inside one; "
                     "move it out of the scope's block");
  ScopeFrame::end(std::move(t_global.frame));
  if (!strategy || *strategy == Strategy(default_strategy())) return;
  t_global.frame = enter(strategy->extended().shared_from_this());
  t_global.innermost = ScopeFrame::innermost();
}

}  // namespace cohort
