// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable_impl.h"

#include "cohort/base/check.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal {
namespace {

std::shared_ptr<VariableCreator>& thread_creator() {
  thread_local std::shared_ptr<VariableCreator> creator;
  return creator;
}

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
  const auto& creator = thread_creator();
  return creator ? *creator : *LocalVariables::default_instance();
}

VariableCreatorScope::VariableCreatorScope(std::shared_ptr<VariableCreator> creator)
    : before_(std::exchange(thread_creator(), std::move(creator))) {}

VariableCreatorScope::~VariableCreatorScope() { thread_creator() = std::move(before_); }

}  // namespace cohort::internal
