// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_variables.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/remote_table.h"
#include "cohort/coordinator/parameters/remote_updater.h"
#include "cohort/coordinator/parameters/remote_variable.h"
#include "cohort/coordinator/parameters/remote_whole.h"
#include "cohort/coordinator/parameters/transaction.h"

namespace cohort::internal::coordinator {
namespace {

/// What a thread has read since its cache began.
struct ReadCacheState {
  const RemoteVariables* store = nullptr;
  std::unordered_set<const variables::VariableImpl*> read = {};
};
thread_local ReadCacheState* t_cache = nullptr;

Device device_of(int server) {
  return Device(str_cat("/job:ps/replica:0/task:", server, "/device:CPU:0"));
}

/// Makes what is asked for on one server.
class BesideCreator final : public variables::VariableCreator {
 public:
  BesideCreator(std::shared_ptr<RemoteVariables> store, int server)
      : store_(std::move(store)), server_(server) {}
  std::shared_ptr<variables::VariableImpl> create(const InitialValue& initial,
                                                  const VariableOptions& options) override {
    return store_->create_beside(server_, initial, options);
  }
  std::string owner() const override { return store_->owner(); }

 private:
  const std::shared_ptr<RemoteVariables> store_;
  const int server_;
};

}  // namespace

RemoteVariables::RemoteVariables(RemoteVariablesOptions options)
    : options_(std::move(options)),
      local_(std::make_shared<variables::LocalVariables>(
          variables::LocalVariablesOptions{.owner = options_.owner})) {}

std::shared_ptr<variables::VariableImpl> RemoteVariables::create(const InitialValue& initial,
                                                                 const VariableOptions& options) {
  return create_at(std::nullopt, initial, options);
}

std::shared_ptr<variables::VariableImpl> RemoteVariables::create_beside(
    int server, const InitialValue& initial, const VariableOptions& options) {
  return create_at(server, initial, options);
}

std::shared_ptr<variables::VariableCreator> RemoteVariables::beside(const Variable& variable) {
  const RemoteVariable* const remote = variable.impl().remote();
  COHORT_CHECK_ARG(remote != nullptr, "[strategy.colocate_vars_with] expected a variable that the ",
                   "parameter servers keep, got ", variables::label(variable.impl()));
  return std::make_shared<BesideCreator>(shared_from_this(),
                                         remote->handle().shards.front().place.server);
}

std::string RemoteVariables::take_name(std::set<std::string>& taken, const std::string& name) {
  std::string unique = name;
  for (int n = 1; taken.count(unique) > 0; ++n) unique = str_cat(name, "_", n);
  taken.insert(unique);
  return unique;
}

std::string RemoteVariables::name_of(const VariableOptions& options) {
  const std::string name = options.name.empty() ? "Variable" : options.name;
  if (!is_coordinator()) {
    COHORT_CHECK_ARG(!options.name.empty(),
                     "[variable] expected a name for a variable that a worker makes, got none: "
                     "all workers find the variable by its name");
    return name;
  }
  const base::MutexLock lock(mutex_);
  return take_name(names_, name);
}

void RemoteVariables::free_name(const std::string& name) {
  const base::MutexLock lock(mutex_);
  names_.erase(name);
}

std::string RemoteVariables::take_slots_name(const std::string& optimizer) {
  const std::string name = optimizer.empty() ? "optimizer" : optimizer;
  if (!is_coordinator()) return name;
  const base::MutexLock lock(mutex_);
  return take_name(slot_names_, name);
}

void RemoteVariables::free_slots_name(const std::string& name) {
  const base::MutexLock lock(mutex_);
  slot_names_.erase(name);
}

std::shared_ptr<variables::VariableImpl> RemoteVariables::create_at(
    std::optional<int> server, const InitialValue& initial, const VariableOptions& options) {
  const at::NoGradGuard no_grad;
  const bool is_own = options.synchronization == Synchronization::kOnRead &&
                      options.aggregation == Aggregation::kSum && !options.per_worker;
  if (is_own) return std::make_shared<OwnVariable>(local_->create(initial, options), *this);
  if (!options.per_worker) return make(server, name_of(options), initial, options);
  COHORT_CHECK_ARG(!options.trainable.value_or(false), "[variable] expected \"", options.name,
                   "\", which has a copy for each worker, not to be trainable");
  const std::string name = name_of(options);
  std::vector<std::shared_ptr<RemoteVariable>> copies;
  for (int w = 0; w < options_.workers; ++w) {
    VariableOptions own = options;
    own.trainable = false;
    copies.push_back(make(server, str_cat(name, "/worker_", w), initial, own));
  }
  free_name(name);
  variables::VariableImpl::Description d = copies.front()->description();
  d.name = name;
  return std::make_shared<PerWorkerVariable>(std::move(d), std::move(copies), shared_from_this());
}

std::shared_ptr<RemoteVariable> RemoteVariables::make(std::optional<int> server,
                                                      const std::string& name,
                                                      const InitialValue& initial,
                                                      const VariableOptions& options) {
  // Of a tensor, or where it alone says the dtype; a function makes each shard by itself.
  Tensor whole;
  if (!options.shape || !options.dtype) whole = initial.make(options.shape, options.dtype);
  Declaration what{.name = name,
                   .dtype = whole.defined() ? whole.scalar_type() : *options.dtype,
                   .shape = whole.defined() ? shape_of(whole) : *options.shape,
                   .server = server};
  variables::check_variable_options(options, what.dtype, name);
  const bool in_one = server.has_value() || options.per_worker;
  what.parts = in_one ? 1 : shards_of(options_.partitioner, what.shape, what.dtype, name);
  const auto part = [&](int64_t rows, int64_t first) {
    if (what.parts == 1 && whole.defined()) return whole;
    if (whole.defined()) return whole.narrow(0, first, rows);
    PartitionInfo of{what.shape, Shape(what.shape.size())};
    Shape shape = what.shape;
    if (!shape.empty()) {
      of.offset[0] = first;
      shape[0] = rows;
    }
    return initial.make_part(shape, of, what.dtype).to(what.dtype).contiguous();
  };
  bool made = false;
  ParameterHandle handle;
  try {
    handle = servers().make_or_bind(what, part, &made);
  } catch (...) {
    free_name(name);
    throw;
  }
  variables::VariableImpl::Description d;
  d.name = name;
  d.shape = what.shape;
  d.dtype = what.dtype;
  // There is one value, whatever was asked for.
  d.trainable = options.trainable.value_or(options.synchronization != Synchronization::kOnRead) &&
                at::isFloatingType(d.dtype);
  d.aggregation = options.aggregation;
  d.constraint = options.constraint;
  for (const BoundShard& shard : handle.shards) d.devices.push_back(device_of(shard.place.server));
  return std::make_shared<RemoteVariable>(
      std::move(d), std::move(handle),
      RemoteVariable::Owner{.store = shared_from_this(),
                            .ends = is_coordinator() && (made || options_.is_resumed)});
}

Variable RemoteVariables::bind(const std::string& name, bool trainable) {
  ParameterHandle handle = servers().bind(name);
  variables::VariableImpl::Description d;
  d.name = name;
  d.shape = handle.shape;
  d.dtype = handle.dtype;
  d.trainable = trainable && at::isFloatingType(d.dtype);
  for (const BoundShard& shard : handle.shards) d.devices.push_back(device_of(shard.place.server));
  return Variable(std::make_shared<RemoteVariable>(
      std::move(d), std::move(handle), RemoteVariable::Owner{.store = shared_from_this()}));
}

std::shared_ptr<variables::Updater> RemoteVariables::make_updater(
    std::vector<Variable> variables, variables::UpdaterOptions options) {
  return std::make_shared<RemoteUpdater>(shared_from_this(), std::move(variables),
                                         std::move(options));
}

std::shared_ptr<variables::WholeUpdater> RemoteVariables::make_whole_updater(
    std::vector<Variable> variables, const std::string& optimizer,
    std::vector<std::vector<variables::SlotForm>> forms) {
  return std::make_shared<RemoteWhole>(shared_from_this(), std::move(variables), optimizer,
                                       std::move(forms));
}

bool RemoteVariables::renews_rows(const Variable& variable) const {
  const RemoteVariable* const remote = variable.impl().remote();
  return remote != nullptr && remote->table() != nullptr;
}

std::shared_ptr<variables::IdTable> RemoteVariables::table_of(
    const Variable& rows, const variables::IdTableOptions& options, const char* why) {
  RemoteVariable* const remote = rows.impl().remote();
  if (remote == nullptr || rows.impl().container() != rows) {
    throw Unimplemented(str_cat(why,
                                "expected a variable that parameter servers keep, as a whole, ",
                                "got ", variables::label(rows.impl())));
  }
  if (options_.sync_pushes.is_on()) {
    throw Unimplemented(str_cat(
        why, "expected a strategy without sync_replicas for ", variables::label(rows.impl()),
        ": a gradient that waits for others would have to be kept by ids, which is not there yet"));
  }
  if (remote->table() == nullptr) {
    servers().make_table(remote->handle(), options);
    remote->set_table(std::make_shared<RemoteTable>(*remote, shared_from_this(), options));
  }
  auto table = remote->table();
  COHORT_CHECK_STATE(table->options() == options, why, "expected for ",
                     variables::label(rows.impl()),
                     " the options of the table that has been made of it, got others");
  return table;
}

void RemoteVariables::note_read(const RemoteVariable& variable) {
  const base::MutexLock lock(mutex_);
  if (!is_read_.insert(&variable).second) return;
  // Their holder is const where it is read.
  read_.push_back(
      std::const_pointer_cast<variables::VariableImpl>(variable.weak_from_this().lock()));
}

void RemoteVariables::begin_pass() {
  const uint64_t pass = pass_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::vector<std::shared_ptr<variables::VariableImpl>> alive;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& each : read_) {
      if (auto variable = each.lock()) alive.push_back(std::move(variable));
    }
    read_.clear();
    is_read_.clear();
  }
  // First: weights may be newer than what a push of this pass says of them, never older.
  see_updates();
  if (alive.size() < 2) return;
  std::vector<const ParameterHandle*> handles;
  for (const auto& each : alive) {
    auto& variable = static_cast<RemoteVariable&>(*each);
    variable.begin_prefetch();
    handles.push_back(&variable.handle());
  }
  const std::vector<Tensor> values = servers().pull_all(handles);
  for (std::size_t i = 0; i < alive.size(); ++i) {
    static_cast<RemoteVariable&>(*alive[i]).prefetched(values[i], pass);
  }
}

std::vector<std::shared_ptr<SeenUpdates>> RemoteVariables::followed() {
  std::vector<std::shared_ptr<SeenUpdates>> out;
  const base::MutexLock lock(mutex_);
  for (const auto& each : followed_) {
    if (auto updates = each.lock()) out.push_back(std::move(updates));
  }
  return out;
}

// Of an optimizer that the coordinator has dropped meanwhile nothing is pushed that counts.
void RemoteVariables::see_updates() {
  const auto all = followed();
  std::vector<ParameterHandle> counters;
  for (const auto& each : all) counters.push_back(each->counter);
  const auto steps = servers().push_steps(counters);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (steps[i]) all[i]->step = *steps[i];
  }
}

void RemoteVariables::check_reads_behind_writes(const std::string& operation,
                                                const std::string& what) const {
  if (Transaction::current() == nullptr) return;
  throw Unimplemented(str_cat("[", operation, "] expected no ", what,
                              " in a function that schedule_exactly_once runs: what that writes is "
                              "done when it has ended, and ",
                              what, " would read what was there before; use schedule()"));
}

void RemoteVariables::complete_updates(const Variable& iterations) {
  if (!aggregates_pushes(iterations)) return;
  const ParameterHandle& counter = iterations.impl().remote()->handle();
  for (const auto& each : followed()) {
    const ParameterHandle& its = each->counter;
    if (its.name != counter.name || its.generation != counter.generation) continue;
    each->step = servers().complete_update(each->variables, each->slots, its);
  }
  pass_.fetch_add(1, std::memory_order_relaxed);  // weights are others now
}

std::shared_ptr<SeenUpdates> RemoteVariables::follow_updates(const ParameterHandle& counter,
                                                             std::vector<ParameterHandle> variables,
                                                             std::string slots) {
  auto out = std::make_shared<SeenUpdates>();
  out->counter = counter;
  out->variables = std::move(variables);
  out->slots = std::move(slots);
  const auto step = servers().push_steps({counter}).front();
  COHORT_CHECK_STATE(step.has_value(), "[optimizer.build] expected a count of updates, got \"",
                     counter.name, "\", which has been deleted");
  out->step = *step;
  const base::MutexLock lock(mutex_);
  followed_.erase(std::remove_if(followed_.begin(), followed_.end(),
                                 [](const auto& each) { return each.expired(); }),
                  followed_.end());
  followed_.push_back(out);
  return out;
}

std::shared_ptr<void> RemoteVariables::cache_reads() {
  COHORT_CHECK_ARG(t_cache == nullptr,
                   "[strategy.cache_variable_reads] expected no other cache around this one on the "
                   "same thread, got one; they cannot be nested");
  auto state = std::make_unique<ReadCacheState>(ReadCacheState{this});
  t_cache = state.get();
  return {state.release(), [](ReadCacheState* ended) {
            if (t_cache == ended) t_cache = nullptr;
            delete ended;
          }};
}

bool RemoteVariables::is_cached(const variables::VariableImpl& variable, bool remember) const {
  if (t_cache == nullptr || t_cache->store != this) return false;
  return remember ? !t_cache->read.insert(&variable).second : t_cache->read.count(&variable) > 0;
}

WithoutReadCache::WithoutReadCache() : before_(std::exchange(t_cache, nullptr)) {}
WithoutReadCache::~WithoutReadCache() { t_cache = static_cast<ReadCacheState*>(before_); }

}  // namespace cohort::internal::coordinator
