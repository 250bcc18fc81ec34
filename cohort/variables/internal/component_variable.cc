// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/component_variable.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/internal/write.h"

namespace cohort::internal::variables {

ComponentVariable::ComponentVariable(Description description, std::shared_ptr<LocalImpl> whole,
                                     int replica)
    : LocalImpl(std::move(description)), whole_(std::move(whole)), replica_(replica) {
  store_ = whole_->store();
}

Tensor ComponentVariable::write(Write kind, const Tensor& x) {
  check_value(operation_name(kind), x);
  write_tensor(own().tensor, kind, x);
  return value();
}

void ComponentVariable::write(Write kind, const PerReplica<Tensor>&) {
  throw InvalidArgument(str_cat(operation_name(kind), "expected one tensor for component \"",
                                description_.name, "\", got a value per replica"));
}

void ComponentVariable::scatter(Scatter kind, const IndexedSlices& slices) {
  check_scattered(operation_name(kind), *this, slices);
  scatter_rows(own().tensor, kind, slices);
}

}  // namespace cohort::internal::variables
