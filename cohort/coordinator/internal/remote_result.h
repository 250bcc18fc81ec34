// SPDX-License-Identifier: Apache-2.0
//
// What becomes of one scheduled function: a value or an error, once.
#pragma once

#include <condition_variable>
#include <exception>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/call_codec.h"

namespace cohort {

/// Of a RemoteValue. TF: RemoteValueStatus.
enum class RemoteStatus { kNotReady, kReady, kAborted };

namespace internal::coordinator {

/// Threads: thread-safe.
class RemoteResult {
 public:
  // The first of the two counts: a function may run twice.
  void set(EncodedValues value);
  void fail(std::exception_ptr error);

  RemoteStatus status() const;
  /// Blocks: until the function has ended. Errors: what it has thrown; Cancelled.
  const EncodedValues& wait() const;

 private:
  mutable base::Mutex mutex_;
  mutable std::condition_variable_any changed_;
  RemoteStatus status_ COHORT_GUARDED_BY(mutex_) = RemoteStatus::kNotReady;
  EncodedValues value_;  // written once, before it is ready
  std::exception_ptr error_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace internal::coordinator
}  // namespace cohort
