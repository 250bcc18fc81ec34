// SPDX-License-Identifier: Apache-2.0
//
// A DynamicTable whose ids and rows a store keeps, such as parameter servers: gradients name ids.
#pragma once

#include <memory>

#include "cohort/autograd/internal/dynamic_table_impl.h"

namespace cohort {

class DynamicTable::Impl::Stored final : public DynamicTable::Impl {
 public:
  Stored(Variable rows, DynamicTableOptions options, internal::variables::IdTableStore& store,
         const char* why);
  void see(const Tensor& ids) override;
  Tensor lookup(const Tensor& ids) override;
  internal::variables::IdTable::Counts counts() override { return table_->counts(); }
  internal::variables::IdMapState state() override { return table_->state(); }
  void restore(const internal::variables::IdMapState& state) override;

 private:
  bool is_shared_out() const override { return true; }

  const std::shared_ptr<internal::variables::IdTable> table_;
  internal::base::Mutex mutex_;
  int64_t updates_ COHORT_GUARDED_BY(mutex_) = -1;  // when this process's step began
  bool has_warned_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort
