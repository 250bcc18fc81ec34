// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable_impl.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <atomic>

#include "cohort/base/check.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/internal/write.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables {
namespace {

int64_t next_number() {
  static std::atomic<int64_t> made = 0;
  return ++made;
}

}  // namespace

VariableImpl::VariableImpl(Description description)
    : description_(std::move(description)),
      number_(next_number()),
      numel_(c10::multiply_integers(description_.shape)) {}

std::string label(const VariableImpl& variable) {
  return str_cat('"', variable.description().name, "\" (variable ", variable.number(), ")");
}

std::string owner_of(const VariableImpl& variable) {
  return variable.store() != nullptr ? variable.store()->owner() : "another strategy";
}

Tensor select_rows(const Tensor& table, const Tensor& rows) {
  const Tensor here = rows.to(table.device());
  if (here.is_cpu() || table.size(0) == 0) return table.index_select(0, here);
  // Nobody has looked at them (check_rows): what is not there reads as zeros, as TensorFlow's.
  const Tensor is_there = here.ge(0).logical_and(here.lt(table.size(0)));
  Shape column(static_cast<std::size_t>(table.dim()), 1);
  column[0] = here.size(0);
  const Tensor some = table.index_select(0, here.where(is_there, at::zeros({}, here.options())));
  return some.where(is_there.view(column), at::zeros({}, some.options()));
}

Tensor VariableImpl::gather_rows(const Tensor& rows) const { return select_rows(value(), rows); }

Tensor VariableImpl::write(Write kind, double literal) {
  return write(kind, number_of(operation_name(kind), literal, description_.dtype));
}

void VariableImpl::write(Write kind, const PerReplica<Tensor>& x) {
  COHORT_CHECK_ARG(x.size() == 1, operation_name(kind), "expected 1 value for variable ",
                   label(*this), ", got ", x.size());
  write(kind, x[0]);
}

Leaf& VariableImpl::leaf_of(int replica) {
  COHORT_CHECK(replica == 0, "expected leaf 0 of ", label(*this), ", got ", replica);
  return leaf();
}

void VariableImpl::check_value(const char* operation, const Tensor& x) const {
  COHORT_CHECK_ARG(x.defined(), operation, "expected a value for variable ", label(*this),
                   ", got an undefined tensor");
  COHORT_CHECK_ARG(x.dim() == 0 || shape_of(x) == description_.shape, operation, "expected shape ",
                   bracketed(description_.shape), " for variable ", label(*this), ", got ",
                   bracketed(x.sizes()));
  COHORT_CHECK_ARG(c10::canCast(x.scalar_type(), description_.dtype), operation, "expected ",
                   dtype_name(description_.dtype), " for variable ", label(*this), ", got ",
                   dtype_name(x.scalar_type()),
                   ", of which it would lose a part; convert it with to() if that is meant");
}

void VariableImpl::check_rows(const char* operation, const Tensor& indices) const {
  const Description& d = description_;
  COHORT_CHECK_ARG(!d.shape.empty(), operation, "expected a variable with rows, got ", label(*this),
                   ", a single number");
  COHORT_CHECK_ARG(indices.defined(), operation, "expected indices of rows of variable ",
                   label(*this), ", got an undefined tensor");
  COHORT_CHECK_ARG(indices.scalar_type() == kInt32 || indices.scalar_type() == kInt64, operation,
                   "expected int32 or int64 indices of rows of variable ", label(*this), ", got ",
                   dtype_name(indices.scalar_type()));
  // Of those on another device nobody here knows what they are without waiting for it.
  if (indices.numel() == 0 || !indices.is_cpu()) return;
  const int64_t lowest = indices.min().item<int64_t>();
  const int64_t highest = indices.max().item<int64_t>();
  COHORT_CHECK_ARG(lowest >= 0 && highest < d.shape[0], operation, "expected indices in [0, ",
                   d.shape[0], ") of rows of variable ", label(*this), ", got ",
                   lowest < 0 ? lowest : highest);
}

void VariableImpl::scatter(Scatter kind, const IndexedSlices&) {
  throw Unimplemented(str_cat(operation_name(kind), "expected a variable of a strategy, got ",
                              label(*this), ", which can only be assigned as a whole"));
}

ParameterStore& store_of(const char* operation, const Variable& variable) {
  ParameterStore* const store = variable.impl().store();
  COHORT_CHECK_ARG(store != nullptr, operation, "expected a strategy's variable, got ",
                   label(variable.impl()), ", which an object keeps for itself");
  return *store;
}

void ParameterStore::begin_renewing_rows(const Variable& variable, const char* why) {
  throw Unimplemented(str_cat(
      why, "expected a strategy that keeps its variables in this process, got ", owner(), " for ",
      label(variable.impl()),
      ": parameter servers do not give rows to new ids yet; use MirroredStrategy, or an Embedding "
      "of fixed size behind keras::Hashing"));
}

void ParameterStore::renew_rows(const Variable& variable, const IndexedSlices&) {
  begin_renewing_rows(variable, "[renew_rows] ");
}

int64_t ParameterStore::updates_of(const Variable&, int) const { return 0; }

VariableCreator& current_variable_creator() {
  VariableCreator* const creator = runtime::current_context().creator;
  return creator != nullptr ? *creator : *LocalVariables::default_instance();
}

VariableCreatorScope::VariableCreatorScope(std::shared_ptr<VariableCreator> creator)
    : creator_(std::move(creator)), frame_(runtime::current_context()) {
  frame_.context().creator = creator_.get();
}

}  // namespace cohort::internal::variables
