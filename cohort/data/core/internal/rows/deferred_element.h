// SPDX-License-Identifier: Apache-2.0
//
// An element that is computed by the first thread that reads it.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "cohort/base/mutex.h"
#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// What a batch on the index path is until somebody looks: row numbers and their source.
/// Threads: thread-safe; the first reader computes, others wait for it.
class DeferredElement {
 public:
  virtual ~DeferredElement() = default;

  const Element& value() const;
  bool is_computed() const { return ready_.load(std::memory_order_acquire); }

  virtual int64_t rows() const = 0;
  /// Structure of the element: the spec of one row.
  virtual const ElementSpec& row_spec() const = 0;
  /// A deferred element of some of the rows.
  virtual Element slice(int64_t begin, int64_t count) const = 0;
  /// A deferred element of the rows of all parts, of which this is the first; without a value if
  /// their rows are not in one place.
  virtual Element join(std::span<const std::shared_ptr<const DeferredElement>> parts) const = 0;

 protected:
  virtual Element compute() const = 0;

 private:
  /// Behind ready_.
  const Element& constant_value() const COHORT_NO_THREAD_SAFETY_ANALYSIS { return value_; }

  mutable std::atomic<bool> ready_{false};
  mutable base::Mutex mutex_;
  mutable Element value_ COHORT_GUARDED_BY(mutex_);  ///< Constant once ready_.
};

/// The spec of `rows` rows that look like `row`; kUnknownDim rows where the number varies.
ElementSpec batched_spec(const ElementSpec& row, int64_t rows);

}  // namespace cohort::internal::data
