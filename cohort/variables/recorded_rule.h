// SPDX-License-Identifier: Apache-2.0
//
// The rule of an update that is recorded: its numbers are other ones in each step
// (runtime/step_recording.h).
//
// A RecordedRule stands around the call of updater.apply(), and is told how to get the rule anew.
#pragma once

#include <functional>
#include <memory>

#include "cohort/update_rules/rules.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::internal::variables {

struct RuleOfStep {
  update_rules::Rule rule;
  double weight_decay = 0;  ///< As Updater::apply's.
};

/// While it lives, updates of the calling thread take their rules from `now` in each start of the
/// recording that is under way, called once a start; where none is it does nothing. Order: `now`
/// always gives the same kind of rule. Threads: bound to one.
class [[nodiscard]] RecordedRule {
 public:
  explicit RecordedRule(std::function<RuleOfStep()> now);
  ~RecordedRule();
  RecordedRule(const RecordedRule&) = delete;
  RecordedRule& operator=(const RecordedRule&) = delete;

 private:
  const std::shared_ptr<const RuleOfStep> before_;
};

/// Where the kernels of an update of this dtype find the rule and the options; null where nothing
/// is recorded. `decays`: the rule's weight decay is that of the variables, else they have none.
/// Errors: RecordingRefused outside of a RecordedRule, and for kernels that cannot.
const std::byte* recorded_rule(const UpdateKernels& kernels, DType dtype,
                               const update_rules::UpdateOptions& how, bool decays);

}  // namespace cohort::internal::variables
