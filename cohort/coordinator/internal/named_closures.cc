// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/named_closures.h"

#include <algorithm>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/coordinator/internal/remote_result.h"

namespace cohort::internal::coordinator {

std::shared_ptr<RemoteResult> NamedClosures::find(const Closure& closure) {
  const std::string& id = closure.key.id;
  if (id.empty()) return nullptr;
  COHORT_CHECK_STATE(journal_ != nullptr,
                     "[schedule] expected a strategy with a journal, by which functions are found "
                     "again, got the id \"",
                     id, "\" and a strategy without");
  const base::MutexLock lock(mutex_);
  if (const auto found = named_.find(id); found != named_.end()) {
    const std::shared_ptr<RemoteResult> before = found->second.result.lock();
    if (before != nullptr && before->status() == RemoteStatus::kNotReady) {
      check_same(found->second.key, closure.key);
      return before;
    }
    named_.erase(found);
  }
  std::optional<EncodedValues> value = journal_->find(closure.key);
  if (!value) return nullptr;
  closure.result->set(std::move(*value));
  return closure.result;
}

void NamedClosures::add(const Closure& closure) {
  if (closure.key.id.empty()) return;
  const base::MutexLock lock(mutex_);
  named_[closure.key.id] = {.key = closure.key, .result = closure.result};
}

void NamedClosures::write_down(const std::vector<ClosurePtr>& closures, RunAnswer& answer) {
  if (journal_ == nullptr) return;
  for (CallAnswer& each : answer.calls) {
    if (each.state != CallAnswer::State::kValue) continue;
    const auto found = std::find_if(closures.begin(), closures.end(),
                                    [&](const ClosurePtr& one) { return one->id == each.id; });
    if (found == closures.end() || (*found)->counts_once || (*found)->key.id.empty()) continue;
    try {
      base::failpoint("coordinator.before_journal");
      journal_->finish((*found)->key, each.value);
    } catch (const Error&) {
      each.state = CallAnswer::State::kError;
      each.error = std::current_exception();
    }
  }
}

void NamedClosures::forget_finished(const ClosureQueue& queue) {
  COHORT_CHECK_STATE(journal_ != nullptr,
                     "[forget_finished] expected a strategy with a journal, got one without");
  COHORT_CHECK_STATE(queue.is_idle(), "[forget_finished] expected that all functions have ended, ",
                     "got ", queue.waiting(), " that wait and ", queue.running(),
                     " that run; call join() first");
  const base::MutexLock lock(mutex_);
  journal_->forget_finished();
  named_.clear();
}

}  // namespace cohort::internal::coordinator
