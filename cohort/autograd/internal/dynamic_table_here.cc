// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/internal/dynamic_table_here.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort {

using internal::autograd::host_ids;
using internal::autograd::numbers_of;
using internal::variables::IdMap;

DynamicTable::Impl::Here::Here(Variable rows, DynamicTableOptions options)
    : Impl(std::move(rows), options), map_(id_options().map) {}

void DynamicTable::Impl::Here::see(const Tensor& given) {
  rows_.impl().leaf();  // of this strategy's replicas?
  const Tensor ids = host_ids("[dynamic_table.see] ", given);
  internal::runtime::ReplicaGroup* const group = internal::runtime::current_replica_group();
  if (current_replica() < 0 || group == nullptr) return see_all(numbers_of(ids));
  COHORT_CHECK_STATE(rows_.impl().leaf_count() == group->size(),
                     "[dynamic_table.see] expected a table made under this strategy's scope, got ",
                     internal::variables::label(rows_.impl()), " of ",
                     internal::variables::owner_of(rows_.impl()));
  struct Seen {
    const Impl* table;
    std::span<const int64_t> ids;
  };
  group->merge(
      "dynamic_table.see", Seen{this, numbers_of(ids)}, [&](internal::runtime::Brought<Seen> all) {
        std::vector<int64_t> together;
        for (const Seen& each : all) {
          COHORT_CHECK_STATE(
              each.table == this, "[dynamic_table.see] expected every replica to bring ids of ",
              internal::variables::label(rows_.impl()), " here, got those of another table");
          together.insert(together.end(), each.ids.begin(), each.ids.end());
        }
        see_all(together);
      });
}

void DynamicTable::Impl::Here::see_all(std::span<const int64_t> ids) {
  const at::NoGradGuard no_grad;
  const internal::variables::CountedIds counted = internal::variables::counted(ids);
  const internal::base::MutexLock lock(mutex_);
  if (const int64_t updates = store().updates_of(rows_, 0); updates != updates_) {
    map_.begin_step();
    updates_ = updates;
  }
  const int64_t refused = map_.refused();
  map_.see(counted.ids, counted.counts);
  const std::vector<IdMap::Fresh> fresh = map_.take_fresh();
  if (map_.refused() > refused && !std::exchange(has_warned_, true)) warn_when_full();
  if (fresh.empty()) return;
  std::vector<int64_t> fresh_ids, places;
  for (const IdMap::Fresh& each : fresh) {
    fresh_ids.push_back(each.id);
    places.push_back(each.row);
  }
  const auto count = static_cast<int64_t>(fresh.size());
  store().renew_rows(rows_, {.values = first_rows(fresh_ids),
                             .indices = from_vector(places, {count}),
                             .dense_shape = rows_.shape()});
}

Tensor DynamicTable::Impl::Here::lookup(const Tensor& given) {
  const Tensor ids = host_ids("[dynamic_table.lookup] ", given);
  const std::span<const int64_t> numbers = numbers_of(ids);
  std::vector<int64_t> places, known, unknown_ids, unknown;
  const bool is_recorded = internal::autograd::needs_node({}, {&rows_});
  const int64_t updates = store().updates_of(rows_, current_replica());
  {
    const internal::base::MutexLock lock(mutex_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const int64_t row = map_.find(numbers[i]);
      if (row == IdMap::kNoRow) {
        unknown_ids.push_back(numbers[i]);
        unknown.push_back(static_cast<int64_t>(i));
      } else {
        // Those seen in this step stay anyway.
        const bool is_seen = map_.is_of_this_step(row) && updates == updates_;
        if (is_recorded && !is_seen) map_.hold(row);
        places.push_back(row);
        known.push_back(static_cast<int64_t>(i));
      }
    }
  }
  const auto as_tensor = [](const std::vector<int64_t>& x) {
    return from_vector(x, {static_cast<int64_t>(x.size())});
  };
  Tensor out = embedding_lookup(rows_, as_tensor(places));
  if (!unknown.empty()) {
    Shape shape = row_shape();
    shape.insert(shape.begin(), ids.numel());
    Tensor all = zeros(shape, rows_.dtype());
    all.index_copy_(0, as_tensor(unknown), rows_of_unknown(unknown_ids));
    out = all.to(out.device()).index_copy(0, as_tensor(known).to(out.device()), out);
  }
  return shaped(out, given);
}

internal::variables::IdTable::Counts DynamicTable::Impl::Here::counts() {
  const internal::base::MutexLock lock(mutex_);
  return {.size = map_.size(),
          .candidates = map_.candidates(),
          .evicted = map_.evicted(),
          .refused = map_.refused()};
}

internal::variables::IdMapState DynamicTable::Impl::Here::state() {
  const internal::base::MutexLock lock(mutex_);
  return map_.state();
}

void DynamicTable::Impl::Here::restore(const internal::variables::IdMapState& state) {
  const internal::base::MutexLock lock(mutex_);
  map_.restore(state);
  updates_ = -1;
}

}  // namespace cohort
