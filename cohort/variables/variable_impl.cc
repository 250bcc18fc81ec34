// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable_impl.h"

#include "cohort/base/check.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal {
namespace {

// A plain pointer: it can be read and written while a thread's other objects die.
constinit thread_local VariableCreator* t_creator = nullptr;

}  // namespace

const std::shared_ptr<Arena>& VariableImpl::arena() const {
  static const std::shared_ptr<Arena> none;
  return range_ ? range_->arena : none;
}

void VariableImpl::check_shape(const char* operation, const Tensor& x) const {
  COHORT_CHECK_ARG(x.defined(), operation, "expected a value for variable \"", description_.name,
                   "\", got an undefined tensor");
  COHORT_CHECK_ARG(x.dim() == 0 || shape_of(x) == description_.shape, operation, "expected shape ",
                   bracketed(description_.shape), " for variable \"", description_.name, "\", got ",
                   bracketed(x.sizes()));
}

const Tensor& Component::gradient_view(const std::shared_ptr<ArenaRange>& range,
                                       GradientBuffer& buffer) {
  for (auto& [owner, view] : gradient_views) {
    if (owner == &buffer) return view;
  }
  gradient_views.emplace_back(&buffer,
                              range->arena->gradient_view(buffer, range, shape_of(tensor)));
  return gradient_views.back().second;
}

VariableCreator& current_variable_creator() {
  return t_creator != nullptr ? *t_creator : *LocalVariables::default_instance();
}

VariableCreator* exchange_variable_creator(VariableCreator* creator) {
  return std::exchange(t_creator, creator);
}

}  // namespace cohort::internal
