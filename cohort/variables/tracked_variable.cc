// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/tracked_variable.h"

#include "cohort/variables/parameter_store.h"

namespace cohort {

namespace internal::variables {
namespace {

std::shared_ptr<checkpoint::SavingGroup> group_of(const Variable& variable) {
  const ParameterStore* const store = variable.impl().store();
  return store == nullptr ? nullptr : store->saving_group();
}

}  // namespace

TrackedValue tracked_variable(std::string name, const Variable& variable) {
  return {.name = std::move(name),
          .dtype = variable.dtype(),
          .shape = variable.shape(),
          .read = [variable] { return variable.value(); },
          .write = [variable](const Tensor& value) { variable.assign(value); },
          .identity = tracked_identity(variable),
          .group = group_of(variable)};
}

const void* tracked_identity(const Variable& variable) { return variable.impl().identity(); }

}  // namespace internal::variables

std::shared_ptr<Trackable> Variable::trackable() const {
  return trackable_value(internal::variables::tracked_variable({}, *this));
}

}  // namespace cohort
