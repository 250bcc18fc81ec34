// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/local_variables.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/communicator_group.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/collectives/worker_layout.h"
#include "cohort/runtime/device_library.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/internal/equal_copies.h"
#include "cohort/variables/internal/local_variable.h"

namespace cohort::internal::variables {
namespace {

const char* name_of(Synchronization synchronization) {
  switch (synchronization) {
    case Synchronization::kAuto:
    case Synchronization::kOnWrite:
      return "on write";
    case Synchronization::kNone:
      return "none";
    case Synchronization::kOnRead:
      return "on read";
  }
  return nullptr;
}

const char* name_of(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kNone:
      return "none";
    case Aggregation::kSum:
      return "sum";
    case Aggregation::kMean:
      return "mean";
    case Aggregation::kOnlyFirstReplica:
      return "only first replica";
  }
  return nullptr;
}

std::string name_of(const VariableOptions& options) {
  return options.name.empty() ? "Variable" : options.name;
}

bool is_trainable(const VariableOptions& options) {
  return options.trainable.value_or(options.synchronization != Synchronization::kOnRead);
}

/// What one replica asks for, where all create together.
struct Request {
  const InitialValue* initial;
  const VariableOptions* options;

  std::string describe() const {
    const auto text = [](const char* name) { return name != nullptr ? name : "invalid"; };
    return str_cat(
        '"', name_of(*options), "\" (", initial->describe(options->shape, options->dtype), ", ",
        is_trainable(*options) ? "trainable" : "not trainable", ", synchronization ",
        text(name_of(options->synchronization)), ", aggregation ",
        text(name_of(options->aggregation)), options->constraint ? ", constrained)" : ")");
  }
};

ReplicaLayout layout_of(const LocalVariablesOptions& options) {
  const int local = static_cast<int>(options.devices.size());
  return options.communicator != nullptr ? layout_of(*options.communicator, local)
                                         : ReplicaLayout(options.worker, options.workers, local);
}

}  // namespace

void check_variable_options(const VariableOptions& options, DType dtype, const std::string& name) {
  COHORT_CHECK_ARG(name_of(options.synchronization) != nullptr,
                   "[variable] expected a value of Synchronization for \"", name, "\", got ",
                   static_cast<int>(options.synchronization));
  COHORT_CHECK_ARG(name_of(options.aggregation) != nullptr,
                   "[variable] expected a value of Aggregation for \"", name, "\", got ",
                   static_cast<int>(options.aggregation));
  COHORT_CHECK_ARG(options.synchronization != Synchronization::kNone,
                   "[variable] expected synchronization on write or on read for \"", name,
                   "\", got none, which no strategy supports");
  COHORT_CHECK_ARG(options.aggregation != Aggregation::kMean || at::isFloatingType(dtype),
                   "[variable] expected a floating type for \"", name,
                   "\", which is aggregated by mean, got ", dtype_name(dtype));
}

LocalVariables::LocalVariables(LocalVariablesOptions options)
    : options_(std::move(options)),
      layout_(layout_of(options_)),
      saving_group_(collectives::saving_group_of(options_.communicator)) {
  runtime::open_device_libraries();
  // One copy is written once: every replica has its slice.
  if (options_.placement == ParameterPlacement::kCentral) {
    options_.schedule = UpdateSchedule::kSharded;
  }
}

std::shared_ptr<VariableImpl> LocalVariables::create(const InitialValue& initial,
                                                     const VariableOptions& options) {
  runtime::ReplicaGroup* group = runtime::current_replica_group();
  COHORT_CHECK_STATE(group == nullptr || options_.group == nullptr || group == options_.group,
                     "[variable] expected to create \"", name_of(options),
                     "\" under the strategy whose run this is, got the scope of ", owner(),
                     " around it; leave that scope first");
  if (group == nullptr || group->size() == 1) return create_now(initial, options);
  // Replica 0 creates for all, so that creation order and initial values agree.
  const Request own{&initial, &options};
  return *group->merge("variable.create", own, [&](runtime::Brought<Request> all) {
    const std::string expected = own.describe();
    for (std::size_t r = 1; r < all.size(); ++r) {
      const std::string got = all[r].describe();
      COHORT_CHECK_STATE(got == expected, "[variable] expected every replica to create ", expected,
                         " here, as replica 0 does, got ", got, " on replica ", r);
    }
    return create_now(initial, options);
  });
}

VariableOptions LocalVariables::complete(const Tensor& value, const VariableOptions& asked) const {
  VariableOptions options = asked;
  options.shape = shape_of(value);
  options.dtype = value.scalar_type();
  options.trainable = is_trainable(asked) && at::isFloatingType(value.scalar_type());
  return options_.variable_options ? options_.variable_options(options) : options;
}

std::shared_ptr<VariableImpl> LocalVariables::create_now(const InitialValue& initial,
                                                         const VariableOptions& asked) {
  const at::NoGradGuard no_grad;
  const Tensor value = first_value(initial.make(asked.shape, asked.dtype), asked);
  const VariableOptions options = complete(value, asked);
  check_variable_options(options, value.scalar_type(), name_of(options));
  VariableImpl::Description d;
  d.name = name_of(options);
  d.shape = shape_of(value);
  d.dtype = value.scalar_type();
  d.synchronization = options.synchronization == Synchronization::kOnRead
                          ? Synchronization::kOnRead
                          : Synchronization::kOnWrite;
  d.aggregation = options.aggregation;
  d.trainable = is_trainable(options) && at::isFloatingType(d.dtype);
  d.constraint = options.constraint;
  d.devices = options_.devices;
  std::shared_ptr<ArenaRange> range;
  // An arena of shared parameters has no place for components that go their own ways.
  const bool fits = options_.placement == ParameterPlacement::kMirrored ||
                    d.synchronization == Synchronization::kOnWrite;
  if (options_.placement == ParameterPlacement::kCentral &&
      d.synchronization == Synchronization::kOnWrite) {
    d.devices = {central_device()};
  }
  if (d.trainable && fits) range = place(d.dtype, value.numel());
  const auto made =
      std::make_shared<LocalVariable>(std::move(d), value, std::move(range), shared_from_this());
  const bool is_mirrored =
      made->copies() > 1 && made->description().synchronization == Synchronization::kOnWrite;
  if (is_mirrored) remember(made);
  return made;
}

// All workers begin with worker 0's.
Tensor LocalVariables::first_value(const Tensor& made, const VariableOptions& options) const {
  if (options_.communicator == nullptr) return made;
  base::failpoint("variable.first_value");
  const std::string aggregation = options.aggregation == Aggregation::kNone
                                      ? ""
                                      : str_cat(" aggregation ", name_of(options.aggregation), ",");
  return collectives::broadcast_across(
      *options_.communicator, "[variable] ",
      str_cat("first value of \"", name_of(options), "\",", aggregation), made.contiguous());
}

std::shared_ptr<Updater> LocalVariables::make_updater(std::vector<Variable> variables,
                                                      UpdaterOptions options) {
  for (const Variable& v : variables) {
    COHORT_CHECK_ARG(v.impl().store() == this, "[optimizer] expected variables of ", owner(),
                     ", got ", label(v.impl()), " of ", owner_of(v.impl()));
    COHORT_CHECK_ARG(!options_.bfloat16_gradients || v.dtype() == kFloat32,
                     "[optimizer] expected float32 variables, whose gradients can travel as "
                     "bfloat16 (bfloat16_gradients), got ",
                     label(v.impl()), " of ", dtype_name(v.dtype()));
  }
  options.bfloat16_gradients = options_.bfloat16_gradients;
  if (options_.bytes_per_bucket > 0) options.bytes_per_bucket = options_.bytes_per_bucket;
  auto made = std::make_shared<FusedUpdate>(std::move(variables), std::move(options));
  const base::MutexLock lock(mutex_);
  std::erase_if(updaters_, [](const auto& each) { return each.expired(); });
  updaters_.push_back(made);
  return made;
}

std::vector<std::shared_ptr<FusedUpdate>> LocalVariables::updaters() const {
  const base::MutexLock lock(mutex_);
  std::vector<std::shared_ptr<FusedUpdate>> out;
  for (const auto& each : updaters_) {
    if (auto updater = each.lock()) out.push_back(std::move(updater));
  }
  return out;
}

void LocalVariables::begin_renewing_rows(const Variable& variable, const char* why) {
  if (layout_.workers() > 1) {
    throw Unimplemented(
        str_cat(why, "expected a strategy of one process, got ", owner(), " of ", layout_.workers(),
                " workers: between workers rows are not given "
                "to new ids yet; use MirroredStrategy, or an Embedding of fixed size"));
  }
  COHORT_CHECK_STATE(!renews_rows(variable), why, "expected a variable of no other table, got ",
                     label(variable.impl()),
                     ", whose rows another table gives away; copy that table's handle");
  const base::MutexLock lock(mutex_);
  std::erase_if(renewed_, [](const auto& each) { return each.expired(); });
  renewed_.push_back(variable.impl().weak_from_this());
  renews_any_ = true;
}

bool LocalVariables::renews_rows(const Variable& variable) const {
  if (!renews_any_) return false;
  const base::MutexLock lock(mutex_);
  return std::any_of(renewed_.begin(), renewed_.end(),
                     [&](const auto& each) { return each.lock().get() == &variable.impl(); });
}

void LocalVariables::renew_rows(const Variable& variable, const IndexedSlices& rows) {
  const at::NoGradGuard no_grad;
  VariableImpl& impl = variable.impl();
  impl.check_slices("[renew_rows] ", rows);
  for (int replica = 0; replica < impl.leaf_count(); ++replica) {
    Tensor& to = impl.leaf_of(replica).tensor;
    if (replica < impl.copies()) {
      to.index_copy_(0, rows.indices.to(to.device(), kInt64), rows.values.to(to.device()));
    } else if (!to.is_same(impl.leaf_of(0).tensor)) {
      to.unsafeGetTensorImpl()->bump_version();  // its memory changed under it
    }
  }
  for (const auto& updater : updaters()) updater->renew_rows(variable, rows.indices);
}

int64_t LocalVariables::updates_of(const Variable& variable, int replica) const {
  int64_t sum = 0;
  for (const auto& updater : updaters()) sum += updater->updates_of(variable, replica);
  return sum;
}

void LocalVariables::remember(const std::shared_ptr<VariableImpl>& variable) {
  const base::MutexLock lock(mutex_);
  if (mirrored_.size() >= sweep_at_) {
    std::erase_if(mirrored_, [](const auto& each) { return each.expired(); });
    sweep_at_ = std::max(sweep_at_, 2 * mirrored_.size());
  }
  mirrored_.push_back(variable);
}

void LocalVariables::check_copies() const {
  std::vector<std::weak_ptr<VariableImpl>> all;
  {
    const base::MutexLock lock(mutex_);
    all = mirrored_;
  }
  for (const auto& each : all) {
    if (const auto variable = each.lock()) check_equal_copies(*variable);
  }
}

std::shared_ptr<ArenaRange> LocalVariables::place(DType dtype, int64_t numel) {
  const base::MutexLock lock(mutex_);
  ArenaDevices devices{.replicas = options_.devices};
  if (options_.placement == ParameterPlacement::kCentral) devices.central = central_device();
  // Those of several replicas are summed before others read them. Gradients may outlive the job.
  if (others() != nullptr && replicas() == 1) {
    devices.shared_gradients = [workers = std::weak_ptr(options_.communicator)](
                                   std::size_t bytes) -> std::unique_ptr<runtime::Region> {
      const auto communicator = workers.lock();
      return communicator != nullptr ? communicator->reserve_memory(bytes) : nullptr;
    };
  }
  return arenas_.try_emplace(dtype, std::move(devices), dtype).first->second.place(numel);
}

const std::shared_ptr<LocalVariables>& LocalVariables::default_instance() {
  // Never destroyed: variables of static storage may outlive every other static.
  static const auto& instance =
      *new std::shared_ptr<LocalVariables>(std::make_shared<LocalVariables>());
  return instance;
}

}  // namespace cohort::internal::variables
