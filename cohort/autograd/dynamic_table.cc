// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/dynamic_table.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <span>
#include <utility>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/variables/id_map.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort {
namespace {

using internal::variables::IdMap;
using internal::variables::VariableImpl;

// Tells these draws from those of other operations of the same seed.
constexpr uint64_t kFirstRows = 0x1d7ab1e;

Tensor host_ids(const char* operation, const Tensor& ids) {
  COHORT_CHECK_ARG(ids.defined() && (ids.scalar_type() == kInt64 || ids.scalar_type() == kInt32),
                   operation, "expected ids of int32 or int64, got ",
                   ids.defined() ? dtype_name(ids.scalar_type()) : "an undefined tensor");
  internal::runtime::refuse_recording("it looks ids up on the host");
  return ids.cpu().to(kInt64).contiguous().view({-1});
}

std::span<const int64_t> numbers_of(const Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), static_cast<std::size_t>(ids.numel())};
}

}  // namespace

class DynamicTable::Impl {
 public:
  Impl(Variable rows, DynamicTableOptions options)
      : rows_(std::move(rows)),
        options_(options),
        row_shape_(rows_.shape().begin() + 1, rows_.shape().end()),
        map_({.capacity = rows_.shape()[0],
              .admit_after = options.admit_after,
              .candidates = options.candidates,
              .when_full = options.when_full,
              .steps_to_live = options.steps_to_live}) {}

  void see(const Tensor& ids);
  Tensor lookup(const Tensor& ids);
  Tensor first_rows(std::span<const int64_t> ids) const;
  template <class Read>
  auto read(const Read& what) {
    const internal::base::MutexLock lock(mutex_);
    return what(map_);
  }
  const Variable& rows() const { return rows_; }
  const Shape& row_shape() const { return row_shape_; }
  std::vector<int64_t> save() {
    return read([](const IdMap& map) { return map.save(); });
  }
  void restore(const Tensor& numbers);

 private:
  internal::variables::ParameterStore& store() const { return *rows_.impl().store(); }
  void see_all(std::span<const int64_t> ids);
  void warn_when_full() COHORT_REQUIRES(mutex_);

  const Variable rows_;
  const DynamicTableOptions options_;
  const Shape row_shape_;
  internal::base::Mutex mutex_;
  IdMap map_ COHORT_GUARDED_BY(mutex_);
  int64_t updates_ COHORT_GUARDED_BY(mutex_) = -1;  // when the map's step began
  bool has_warned_ COHORT_GUARDED_BY(mutex_) = false;
};

namespace {

/// The map as a variable of no strategy.
class MapVariable final : public VariableImpl {
 public:
  using Read = std::function<Tensor()>;
  using Set = std::function<void(const Tensor&)>;
  MapVariable(Description description, Read read, Set set)
      : VariableImpl(std::move(description)), read_(std::move(read)), set_(std::move(set)) {}

  Tensor value() const override { return read_(); }
  using VariableImpl::write;
  Tensor write(internal::variables::Write kind, const Tensor& x) override {
    COHORT_CHECK_ARG(kind == internal::variables::Write::kAssign,
                     "[dynamic_table] expected the ids of a table to be assigned as a whole");
    check_value("[dynamic_table] ", x);
    set_(x);
    return x;
  }
  internal::variables::Leaf& leaf() override {
    throw FailedPrecondition(
        "[dynamic_table] expected lookups, got the use of a table's ids as a variable");
  }

 private:
  const Read read_;
  const Set set_;
};

}  // namespace

void DynamicTable::Impl::see(const Tensor& given) {
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

void DynamicTable::Impl::see_all(std::span<const int64_t> ids) {
  const at::NoGradGuard no_grad;
  const internal::base::MutexLock lock(mutex_);
  if (const int64_t updates = store().updates_of(rows_, 0); updates != updates_) {
    map_.begin_step();
    updates_ = updates;
  }
  const int64_t refused = map_.refused();
  map_.see(ids);
  const std::vector<IdMap::Fresh> fresh = map_.take_fresh();
  if (map_.refused() > refused) warn_when_full();
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

void DynamicTable::Impl::warn_when_full() {
  if (has_warned_) return;
  has_warned_ = true;
  COHORT_LOG(kWarning, "[dynamic_table] all ", map_.options().capacity, " rows of ",
             internal::variables::label(rows_.impl()),
             map_.options().when_full == WhenFull::kRefuse
                 ? " are taken, and when_full is to refuse: "
                 : " were looked up since the last update, and stay until the next one: ",
             "further ids have none and do not train; give it more rows");
}

Tensor DynamicTable::Impl::first_rows(std::span<const int64_t> ids) const {
  Shape shape = row_shape_;
  shape.insert(shape.begin(), static_cast<int64_t>(ids.size()));
  Tensor out = empty(shape, rows_.dtype());
  const auto width = ids.empty() ? 0 : static_cast<std::size_t>(out.numel()) / ids.size();
  const auto fill = [&]<class T>(T* to) {
    for (const int64_t id : ids) {
      const internal::runtime::RandomStream stream(options_.seed, kFirstRows,
                                                   static_cast<uint64_t>(id), -1);
      internal::runtime::fill_uniform<T>(stream, static_cast<T>(options_.minval),
                                         static_cast<T>(options_.maxval), {to, width});
      to += width;
    }
  };
  rows_.dtype() == kFloat64 ? fill(out.mutable_data_ptr<double>())
                            : fill(out.mutable_data_ptr<float>());
  return out;
}

Tensor DynamicTable::Impl::lookup(const Tensor& given) {
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
    Shape shape = row_shape_;
    shape.insert(shape.begin(), ids.numel());
    Tensor all = full(shape, options_.default_value.value_or(0), rows_.dtype());
    if (!options_.default_value) {
      all.index_copy_(0, as_tensor(unknown), first_rows(unknown_ids));
    }
    out = all.to(out.device()).index_copy(0, as_tensor(known).to(out.device()), out);
  }
  Shape shape = shape_of(given);
  shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
  return out.view(shape);
}

void DynamicTable::Impl::restore(const Tensor& numbers) {
  const Tensor host = numbers.cpu().to(kInt64).contiguous();
  const internal::base::MutexLock lock(mutex_);
  map_.restore(numbers_of(host));
  updates_ = -1;
}

void DynamicTableOptions::check(const char* operation) const {
  COHORT_CHECK_ARG(admit_after > 0, operation, "expected admit_after of at least 1, got ",
                   admit_after);
  COHORT_CHECK_ARG(candidates >= 0, operation, "expected candidates >= 0, got ", candidates);
  COHORT_CHECK_ARG(!steps_to_live || *steps_to_live > 0, operation,
                   "expected steps_to_live of at least 1, got ", steps_to_live.value_or(0));
  COHORT_CHECK_ARG(minval <= maxval, operation, "expected minval <= maxval, got ", minval, " and ",
                   maxval);
}

DynamicTable::DynamicTable(const Variable& rows, DynamicTableOptions options) {
  constexpr const char* kWhat = "[dynamic_table] ";
  COHORT_CHECK_ARG(rows.shape().size() >= 1 && rows.shape()[0] > 0, kWhat,
                   "expected a variable of at least one row, got ",
                   internal::variables::label(rows.impl()), " of shape ", bracketed(rows.shape()));
  COHORT_CHECK_ARG(rows.dtype() == kFloat32 || rows.dtype() == kFloat64, kWhat,
                   "expected rows of float32 or float64, got ", dtype_name(rows.dtype()));
  COHORT_CHECK_ARG(rows.synchronization() == Synchronization::kOnWrite, kWhat,
                   "expected a variable whose copies are equal, got ",
                   internal::variables::label(rows.impl()), ", which is synchronized on read");
  options.check(kWhat);
  impl_ = std::make_shared<Impl>(rows, options);
  internal::variables::store_of(kWhat, rows).begin_renewing_rows(rows, kWhat);
}

DynamicTable::Impl& DynamicTable::use(const char* operation) const {
  return *internal::base::held(impl_, "DynamicTable", operation);
}

void DynamicTable::see(const Tensor& ids) const { use().see(ids); }
Tensor DynamicTable::lookup(const Tensor& ids) const { return use().lookup(ids); }
Tensor DynamicTable::first_row(int64_t id) const {
  return use().first_rows({&id, 1}).view(use().row_shape());
}
const Variable& DynamicTable::rows() const { return use().rows(); }
std::vector<int64_t> DynamicTable::ids() const {
  return use().read([](const IdMap& map) { return map.ids(); });
}
int64_t DynamicTable::size() const {
  return use().read([](const IdMap& map) { return map.size(); });
}
int64_t DynamicTable::capacity() const { return use().rows().shape()[0]; }
int64_t DynamicTable::candidates() const {
  return use().read([](const IdMap& map) { return map.candidates(); });
}
int64_t DynamicTable::evicted() const {
  return use().read([](const IdMap& map) { return map.evicted(); });
}
int64_t DynamicTable::refused() const {
  return use().read([](const IdMap& map) { return map.refused(); });
}

Variable DynamicTable::map() const {
  const std::shared_ptr<Impl> table = (use(), impl_);
  const int64_t length = table->read([](const IdMap& map) { return map.most_saved(); });
  const auto read = [table, length] {
    std::vector<int64_t> numbers = table->save();
    numbers.resize(static_cast<std::size_t>(length), 0);
    return from_vector(numbers, {length});
  };
  VariableImpl::Description description;
  description.name = table->rows().name() + "_ids";
  description.shape = {length};
  description.dtype = kInt64;
  description.trainable = false;
  return Variable(std::make_shared<MapVariable>(std::move(description), read,
                                                [table](const Tensor& x) { table->restore(x); }));
}

std::shared_ptr<Trackable> DynamicTable::trackable() const {
  const std::shared_ptr<Impl> table = (use(), impl_);
  return trackable_value({.dtype = kInt64,
                          .read =
                              [table] {
                                const std::vector<int64_t> numbers = table->save();
                                return from_vector(numbers, {static_cast<int64_t>(numbers.size())});
                              },
                          .write = [table](const Tensor& x) { table->restore(x); },
                          .identity = table.get()});
}

}  // namespace cohort
