// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/local_variables.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/local_variable.h"

namespace cohort::internal {
namespace {

void check_options(const VariableOptions& options, DType dtype) {
  COHORT_CHECK_ARG(options.synchronization != Synchronization::kNone,
                   "[variable] expected synchronization on write or on read for \"", options.name,
                   "\", got none, which no strategy supports");
  COHORT_CHECK_ARG(options.aggregation != Aggregation::kMean || at::isFloatingType(dtype),
                   "[variable] expected a floating type for \"", options.name,
                   "\", which is aggregated by mean, got ", dtype_name(dtype));
}

}  // namespace

LocalVariables::LocalVariables(LocalVariablesOptions options) : options_(std::move(options)) {
  // One copy is written once: every replica has its slice.
  if (options_.placement == ParameterPlacement::kCentral) {
    options_.schedule = UpdateSchedule::kSharded;
  }
}

std::shared_ptr<VariableImpl> LocalVariables::create(const InitialValue& initial,
                                                     const VariableOptions& options) {
  ReplicaGroup* group = current_replica_group();
  if (group == nullptr || group->size() == 1) return create_now(initial, options);
  // Replica 0 creates for all, so that creation order and initial values agree.
  static const char tag = 0;
  return std::static_pointer_cast<VariableImpl>(
      group->merge(&tag, &options, [&](std::span<const void* const> arguments) {
        for (const void* argument : arguments) {
          const auto& other = *static_cast<const VariableOptions*>(argument);
          COHORT_CHECK_STATE(other.name == options.name,
                             "[variable] expected every replica to create \"", options.name,
                             "\" here, got \"", other.name, "\"");
        }
        return std::shared_ptr<void>(create_now(initial, options));
      }));
}

std::shared_ptr<VariableImpl> LocalVariables::create_now(const InitialValue& initial,
                                                         const VariableOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensor value = initial.make(options.shape, options.dtype);
  check_options(options, value.scalar_type());
  VariableImpl::Description d;
  d.name = options.name.empty() ? "Variable" : options.name;
  d.shape = shape_of(value);
  d.dtype = value.scalar_type();
  d.synchronization = options.synchronization == Synchronization::kOnRead
                          ? Synchronization::kOnRead
                          : Synchronization::kOnWrite;
  d.aggregation = options.aggregation;
  d.trainable = options.trainable.value_or(d.synchronization != Synchronization::kOnRead) &&
                at::isFloatingType(d.dtype);
  d.constraint = options.constraint;
  d.devices = options_.devices;
  std::shared_ptr<ArenaRange> range;
  // An arena of shared parameters has no place for components that go their own ways.
  const bool fits = options_.placement == ParameterPlacement::kMirrored ||
                    d.synchronization == Synchronization::kOnWrite;
  if (options_.placement == ParameterPlacement::kCentral &&
      d.synchronization == Synchronization::kOnWrite) {
    d.devices = {options_.parameter_device.value_or(options_.devices.front())};
  }
  if (d.trainable && fits) range = place(d.dtype, value.numel());
  return std::make_shared<LocalVariable>(std::move(d), value, std::move(range), shared_from_this());
}

std::shared_ptr<ArenaRange> LocalVariables::place(DType dtype, int64_t numel) {
  std::scoped_lock lock(mutex_);
  std::shared_ptr<Arena>& arena = arenas_[dtype];
  if (arena) {
    if (const auto offset = arena->allocate(numel)) {
      return std::make_shared<ArenaRange>(arena, *offset, numel);
    }
  }
  arena = Arena::create(replicas(), dtype, options_.placement);
  const auto offset = arena->allocate(numel);
  if (!offset) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[variable] expected at most the machine's memory, got ", numel,
                        " elements of ", dtype_name(dtype)));
  }
  return std::make_shared<ArenaRange>(arena, *offset, numel);
}

const std::shared_ptr<LocalVariables>& LocalVariables::default_instance() {
  // Never destroyed: variables of static storage may outlive every other static.
  static const auto& instance =
      *new std::shared_ptr<LocalVariables>(std::make_shared<LocalVariables>());
  return instance;
}

}  // namespace cohort::internal
