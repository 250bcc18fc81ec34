// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/remote_result.h"

#include <utility>

namespace cohort::internal::coordinator {

void RemoteResult::set(EncodedValues value) {
  const base::MutexLock lock(mutex_);
  if (status_ != RemoteStatus::kNotReady) return;
  value_ = std::move(value);
  status_ = RemoteStatus::kReady;
  changed_.notify_all();
}

void RemoteResult::fail(std::exception_ptr error) {
  const base::MutexLock lock(mutex_);
  if (status_ != RemoteStatus::kNotReady) return;
  error_ = std::move(error);
  status_ = RemoteStatus::kAborted;
  changed_.notify_all();
}

RemoteStatus RemoteResult::status() const {
  const base::MutexLock lock(mutex_);
  return status_;
}

const EncodedValues& RemoteResult::wait() const {
  const base::MutexLock lock(mutex_);
  changed_.wait(mutex_,
                [this]() COHORT_REQUIRES(mutex_) { return status_ != RemoteStatus::kNotReady; });
  if (error_) std::rethrow_exception(error_);
  return value_;
}

}  // namespace cohort::internal::coordinator
