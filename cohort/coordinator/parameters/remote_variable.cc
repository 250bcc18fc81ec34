// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_variable.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/remote_table.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/internal/write.h"

namespace cohort::internal::coordinator {

RemoteVariable::RemoteVariable(Description description, ParameterHandle handle, Owner owner)
    : variables::VariableImpl(std::move(description)),
      handle_(std::move(handle)),
      owner_(std::move(owner)),
      leaf_(description_.shape, description_.dtype, description_.trainable) {
  store_ = owner_.store.get();
}

RemoteVariable::~RemoteVariable() {
  if (owner_.whole == nullptr && owner_.store->is_coordinator()) {
    owner_.store->free_name(handle_.name);
  }
  if (owner_.ends) owner_.store->servers().drop(handle_);
}

Tensor RemoteVariable::read(bool in_cache) const {
  const bool current =
      leaf_.has_value() && !is_changed_ && read_in_ == owner_.store->pass() && leaf_.is_recorded();
  if (in_cache && leaf_.has_value()) return leaf_.tensor();
  if (current && at::GradMode::is_enabled()) return leaf_.tensor();
  const uint64_t pass = owner_.store->pass();
  Tensor now = std::exchange(prefetched_, Tensor());
  if (!now.defined() || prefetched_in_ != pass || is_changed_) {
    now = owner_.store->servers().pull(handle_);
  }
  if (table_ != nullptr) now = table_->by_numbers(now);
  if (current) return now;  // the leaf stays as the pass has read it
  leaf_.fill(now);
  read_in_ = pass;
  is_changed_ = false;
  return leaf_.tensor();
}

void RemoteVariable::begin_prefetch() {
  const base::MutexLock lock(mutex_);
  is_changed_ = false;  // what is written from here on is not in what comes
}

void RemoteVariable::prefetched(const Tensor& value, uint64_t pass) {
  const base::MutexLock lock(mutex_);
  prefetched_ = value;
  prefetched_in_ = pass;
}

Tensor RemoteVariable::value() const {
  const bool in_cache = owner_.store->is_cached(*this, /*remember=*/true);
  if (owner_.whole == nullptr) owner_.store->note_read(*this);
  const base::MutexLock lock(mutex_);
  return read(in_cache);
}

std::shared_ptr<RemoteTable> RemoteVariable::table() const {
  const base::MutexLock lock(mutex_);
  return table_;
}

std::shared_ptr<RemoteTable> RemoteVariable::set_table(std::shared_ptr<RemoteTable> made) {
  const base::MutexLock lock(mutex_);
  if (table_ == nullptr) table_ = std::move(made);
  return table_;
}

void RemoteVariable::check_by_numbers(const char* operation) const {
  if (table() == nullptr) return;
  throw Unimplemented(str_cat(operation, "expected ids for the rows of \"", handle_.name,
                              "\", which a DynamicTable gives away, got their numbers; use the "
                              "table's lookup()"));
}

Tensor RemoteVariable::gather_rows(const Tensor& rows) const {
  check_by_numbers("[embedding_lookup] ");
  return owner_.store->servers().pull_rows(handle_, rows);
}

void RemoteVariable::note_change() {
  {
    const base::MutexLock lock(mutex_);
    is_changed_ = true;
  }
  if (owner_.whole != nullptr) owner_.whole->note_change();
}

Tensor RemoteVariable::write(variables::Write kind, const Tensor& x) {
  check_value(variables::operation_name(kind), x);
  Tensor numbers = x.detach().to(description_.dtype).expand(description_.shape).contiguous();
  if (const auto ids = table()) numbers = ids->as_stored(numbers);
  const Tensor now = owner_.store->servers().write(handle_, {}, kind, numbers);
  note_change();
  const bool in_cache = owner_.store->is_cached(*this, /*remember=*/false);
  if (!now.defined() || in_cache) return value();
  const base::MutexLock lock(mutex_);
  leaf_.fill(now);
  read_in_ = owner_.store->pass();
  is_changed_ = false;
  return leaf_.tensor();
}

void RemoteVariable::scatter(variables::Scatter kind, const IndexedSlices& slices) {
  check_by_numbers(variables::operation_name(kind));
  variables::check_scattered(variables::operation_name(kind), *this, slices);
  owner_.store->servers().scatter(handle_, kind, slices);
  note_change();
}

std::vector<Variable> RemoteVariable::components() {
  if (handle_.shards.size() == 1) return {Variable(shared_from_this())};
  std::vector<Variable> out;
  for (std::size_t i = 0; i < handle_.shards.size(); ++i) {
    const BoundShard& shard = handle_.shards[i];
    ParameterHandle handle = handle_;
    handle.name = handle_.shard_name(i);
    handle.shape = handle_.shape_of_rows(shard.place.rows);
    handle.shards = {shard};
    handle.shards[0].place.first = 0;
    Description d = description_;
    d.name = handle.name;
    d.shape = handle.shape;
    d.devices = {description_.devices[i]};
    out.emplace_back(std::make_shared<RemoteVariable>(
        std::move(d), std::move(handle),
        Owner{.store = owner_.store,
              .ends = false,
              .whole = std::static_pointer_cast<RemoteVariable>(shared_from_this()),
              .shard = i}));
  }
  return out;
}

Variable RemoteVariable::container() {
  return owner_.whole != nullptr ? Variable(owner_.whole) : Variable(shared_from_this());
}

const void* RemoteVariable::identity() const {
  return owner_.whole != nullptr
             ? static_cast<const void*>(&owner_.whole->handle_.shards[owner_.shard])
             : this;
}

PerWorkerVariable::PerWorkerVariable(Description description,
                                     std::vector<std::shared_ptr<RemoteVariable>> copies,
                                     const std::shared_ptr<RemoteVariables>& store)
    : variables::VariableImpl(std::move(description)),
      copies_(std::move(copies)),
      worker_(store->options().worker) {
  store_ = store.get();
}

RemoteVariable& PerWorkerVariable::own(const char* use) const {
  COHORT_CHECK_STATE(worker_.has_value(), "[variable] expected to ", use, " \"", description_.name,
                     "\" in a worker, each of which has a copy of its own, got the coordinator; "
                     "read_all() gives all of them here");
  return *copies_[static_cast<std::size_t>(*worker_)];
}

std::vector<Variable> PerWorkerVariable::components() {
  std::vector<Variable> out;
  for (const auto& each : copies_) out.emplace_back(each);
  return out;
}

}  // namespace cohort::internal::coordinator
