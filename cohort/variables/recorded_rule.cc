// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/recorded_rule.h"

#include <utility>

#include "cohort/runtime/step_recording.h"

namespace cohort::internal::variables {
namespace {

thread_local std::shared_ptr<const RuleOfStep> t_rule;

}  // namespace

RecordedRule::RecordedRule(std::function<RuleOfStep()> now) : before_(t_rule) {
  runtime::StepRecording* const recording = runtime::StepRecording::current();
  if (recording == nullptr) return;
  const auto rule = std::make_shared<RuleOfStep>();
  recording->value(0, [rule, now = std::move(now)](std::byte*) { *rule = now(); });
  t_rule = rule;
}

RecordedRule::~RecordedRule() { t_rule = before_; }

const std::byte* recorded_rule(const UpdateKernels& kernels, DType dtype,
                               const update_rules::UpdateOptions& how, bool decays) {
  runtime::StepRecording* const recording = runtime::StepRecording::current();
  if (recording == nullptr) return nullptr;
  const std::size_t bytes = kernels.rule_bytes();
  if (t_rule == nullptr || bytes == 0) {
    runtime::throw_recording_refused("its weights are updated by numbers of the host");
  }
  return recording->value(bytes, [rule = t_rule, &kernels, dtype, how, decays](std::byte* out) {
    update_rules::UpdateOptions now = how;
    now.weight_decay = decays ? rule->weight_decay : 0;
    kernels.write_rule(dtype, rule->rule, now, out);
  });
}

}  // namespace cohort::internal::variables
