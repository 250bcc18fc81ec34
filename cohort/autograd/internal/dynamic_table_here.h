// SPDX-License-Identifier: Apache-2.0
//
// A DynamicTable whose rows are variables of this process, and whose ids are a map beside them.
#pragma once

#include <vector>

#include "cohort/autograd/internal/dynamic_table_impl.h"
#include "cohort/variables/parameter_store.h"

namespace cohort {

class DynamicTable::Impl::Here final : public DynamicTable::Impl {
 public:
  Here(Variable rows, DynamicTableOptions options);
  void see(const Tensor& ids) override;
  Tensor lookup(const Tensor& ids) override;
  internal::variables::IdTable::Counts counts() override;
  internal::variables::IdMapState state() override;
  void restore(const internal::variables::IdMapState& state) override;

 private:
  internal::variables::ParameterStore& store() const { return *rows_.impl().store(); }
  void see_all(std::span<const int64_t> ids);

  internal::base::Mutex mutex_;
  internal::variables::IdMap map_ COHORT_GUARDED_BY(mutex_);
  int64_t updates_ COHORT_GUARDED_BY(mutex_) = -1;  // when the map's step began
  bool has_warned_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort
