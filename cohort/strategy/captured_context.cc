// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/captured_context.h"

#include <ATen/ThreadLocalState.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/strategy_extended.h"

namespace cohort {

namespace {

// What belongs to the replica's step stays with its thread: the step may be over by then.
internal::runtime::ThreadContext context_here() {
  internal::runtime::ThreadContext context = internal::runtime::current_context();
  context.undo = nullptr;
  context.step = nullptr;
  return context;
}

}  // namespace

struct CapturedContext::Captured {
  const internal::runtime::ThreadContext context = context_here();
  const std::shared_ptr<StrategyExtended> owner = internal::strategy::current_strategy();
  const uint64_t run = context.group != nullptr ? context.group->run_number() : 0;
  const at::ThreadLocalState libtorch;
};

struct CapturedContext::Guard::State {
  explicit State(std::shared_ptr<const Captured> from)
      : captured(std::move(from)), libtorch(captured->libtorch), frame(captured->context) {}
  const std::shared_ptr<const Captured> captured;
  const at::ThreadLocalStateGuard libtorch;
  const internal::runtime::ContextFrame frame;
};

CapturedContext CapturedContext::capture() {
  return CapturedContext(std::make_shared<const Captured>());
}

CapturedContext::Guard::Guard(std::unique_ptr<State> state) : state_(std::move(state)) {}
CapturedContext::Guard::~Guard() = default;

CapturedContext::Guard CapturedContext::enter() const {
  static constexpr const char* kOperation = "[captured_context.enter] ";
  internal::base::held(captured_, "CapturedContext");
  const StrategyExtended* here = internal::runtime::current_context().strategy;
  COHORT_CHECK_STATE(here == nullptr || here == captured_->context.strategy, kOperation,
                     "expected no other strategy around a context, got ",
                     here != nullptr ? here->description() : "", "; leave its scope first");
  const internal::runtime::ReplicaGroup* around = internal::runtime::enclosing_replica_group();
  COHORT_CHECK_STATE(around == nullptr || around == captured_->context.group, kOperation,
                     "expected to be outside of strategy.run, got a replica of another strategy");
  const internal::runtime::ReplicaGroup* group = captured_->context.group;
  COHORT_CHECK_STATE(
      group == nullptr || group->run_number() == captured_->run, kOperation,
      "expected the run where the context was captured to go on, got it finished; join the thread "
      "before the function returns");
  return Guard(std::make_unique<Guard::State>(captured_));
}

}  // namespace cohort
