// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/dynamic_table.h"

#include <functional>
#include <span>
#include <utility>

#include "cohort/autograd/internal/dynamic_table_here.h"
#include "cohort/autograd/internal/dynamic_table_stored.h"
#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort {

using internal::variables::IdTable;
using internal::variables::VariableImpl;

namespace {

// FNV-1a: the same on every machine, and so in every process of a job.
uint64_t hash_of(const std::string& name) {
  uint64_t out = 0xcbf2'9ce4'8422'2325;
  for (const char c : name) out = (out ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return out;
}

}  // namespace

Tensor internal::autograd::host_ids(const char* operation, const Tensor& ids) {
  COHORT_CHECK_ARG(ids.defined() && (ids.scalar_type() == kInt64 || ids.scalar_type() == kInt32),
                   operation, "expected ids of int32 or int64, got ",
                   ids.defined() ? dtype_name(ids.scalar_type()) : "an undefined tensor");
  internal::runtime::refuse_recording("it looks ids up on the host");
  return ids.cpu().to(kInt64).contiguous().view({-1});
}

DynamicTable::Impl::Impl(Variable rows, DynamicTableOptions options)
    : rows_(std::move(rows)),
      options_(options),
      row_shape_(rows_.shape().begin() + 1, rows_.shape().end()),
      id_options_{.map = {.capacity = rows_.shape()[0],
                          .admit_after = options.admit_after,
                          .candidates = options.candidates,
                          .when_full = options.when_full,
                          .steps_to_live = options.steps_to_live},
                  .seed = options.seed.value_or(hash_of(rows_.name())),
                  .minval = options.minval,
                  .maxval = options.maxval} {}

std::shared_ptr<DynamicTable::Impl> DynamicTable::Impl::make(const Variable& rows,
                                                             const DynamicTableOptions& options) {
  constexpr const char* kWhat = "[dynamic_table] ";
  internal::variables::ParameterStore& store = internal::variables::store_of(kWhat, rows);
  if (internal::variables::IdTableStore* const ids = store.id_tables()) {
    return std::make_shared<Stored>(rows, options, *ids, kWhat);
  }
  auto here = std::make_shared<Here>(rows, options);
  store.begin_renewing_rows(rows, kWhat);
  return here;
}

Tensor DynamicTable::Impl::first_rows(std::span<const int64_t> ids) const {
  Shape shape = row_shape_;
  shape.insert(shape.begin(), static_cast<int64_t>(ids.size()));
  Tensor out = empty(shape, rows_.dtype());
  const auto width = ids.empty() ? 0 : static_cast<std::size_t>(out.numel()) / ids.size();
  internal::variables::fill_first_rows(id_options_, ids, rows_.dtype(), width,
                                       static_cast<std::byte*>(out.mutable_data_ptr()));
  return out;
}

Tensor DynamicTable::Impl::rows_of_unknown(std::span<const int64_t> ids) const {
  if (!options_.default_value) return first_rows(ids);
  Shape shape = row_shape_;
  shape.insert(shape.begin(), static_cast<int64_t>(ids.size()));
  return full(shape, *options_.default_value, rows_.dtype());
}

Tensor DynamicTable::Impl::shaped(const Tensor& found, const Tensor& ids) const {
  Shape shape = shape_of(ids);
  shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
  return found.view(shape);
}

int64_t DynamicTable::Impl::most_saved() const {
  return internal::variables::IdMap(id_options_.map).most_saved();
}

void DynamicTable::Impl::warn_when_full() const {
  COHORT_LOG(kWarning, "[dynamic_table] all ", id_options_.map.capacity, " rows of ",
             internal::variables::label(rows_.impl()),
             is_shared_out() ? ", or of the server that an id belongs to," : "",
             options_.when_full == WhenFull::kRefuse
                 ? " are taken, and when_full is to refuse: "
                 : " were looked up since the last update, and stay until the next one: ",
             "further ids have none and do not train; give it more rows");
}

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
  impl_ = Impl::make(rows, options);
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
  std::vector<int64_t> out;
  for (const auto& each : use().state().rows) out.push_back(each.id);
  return out;
}
int64_t DynamicTable::size() const { return use().counts().size; }
int64_t DynamicTable::capacity() const { return use().rows().shape()[0]; }
int64_t DynamicTable::candidates() const { return use().counts().candidates; }
int64_t DynamicTable::evicted() const { return use().counts().evicted; }
int64_t DynamicTable::refused() const { return use().counts().refused; }

namespace {

std::vector<int64_t> numbers_of_ids(const Tensor& given) {
  const Tensor host = given.cpu().to(kInt64).contiguous();
  const auto numbers = internal::autograd::numbers_of(host);
  return {numbers.begin(), numbers.end()};
}

}  // namespace

Variable DynamicTable::map() const {
  const std::shared_ptr<Impl> table = (use(), impl_);
  const int64_t length = table->most_saved();
  const auto read = [table, length] {
    std::vector<int64_t> numbers = internal::variables::numbers_of(table->state());
    numbers.resize(static_cast<std::size_t>(length), 0);
    return from_vector(numbers, {length});
  };
  VariableImpl::Description description;
  description.name = table->rows().name() + "_ids";
  description.shape = {length};
  description.dtype = kInt64;
  description.trainable = false;
  return Variable(
      std::make_shared<MapVariable>(std::move(description), read, [table](const Tensor& x) {
        table->restore(internal::variables::state_of(numbers_of_ids(x)));
      }));
}

std::shared_ptr<Trackable> DynamicTable::trackable() const {
  const std::shared_ptr<Impl> table = (use(), impl_);
  return trackable_value({.dtype = kInt64,
                          .read =
                              [table] {
                                const std::vector<int64_t> numbers =
                                    internal::variables::numbers_of(table->state());
                                return from_vector(numbers, {static_cast<int64_t>(numbers.size())});
                              },
                          .write =
                              [table](const Tensor& x) {
                                table->restore(internal::variables::state_of(numbers_of_ids(x)));
                              },
                          .identity = table.get()});
}

}  // namespace cohort
