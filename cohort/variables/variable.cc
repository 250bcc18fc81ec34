// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable.h"

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort {

InitialValue::InitialValue(Tensor value) : value_(std::move(value)) {}
InitialValue::InitialValue(double value) : value_(scalar(value)), weak_dtype_(true) {}

Tensor InitialValue::make(const std::optional<Shape>& shape, std::optional<DType> dtype) const {
  if (make_) {
    COHORT_CHECK_ARG(shape.has_value(),
                     "[variable] expected a shape with a function as initial value, got none");
    Tensor made =
        make_(*shape, dtype.value_or(kFloat32), PartitionInfo{*shape, Shape(shape->size())});
    COHORT_CHECK_ARG(shape_of(made) == *shape, "[variable] expected an initial value of shape ",
                     bracketed(*shape), ", got ", bracketed(made.sizes()));
    return made.detach().contiguous();
  }
  COHORT_CHECK_ARG(value_.defined(),
                   "[variable] expected an initial value, got an undefined tensor");
  Tensor value = dtype ? value_.to(*dtype) : value_;
  if (weak_dtype_ && shape) return full(*shape, value.item<double>(), value.scalar_type());
  COHORT_CHECK_ARG(!shape || *shape == shape_of(value), "[variable] expected shape ",
                   bracketed(shape.value_or(Shape{})), ", got an initial value of shape ",
                   bracketed(value.sizes()));
  return value.detach().contiguous();
}

std::string InitialValue::describe(const std::optional<Shape>& shape,
                                   std::optional<DType> dtype) const {
  const DType type = dtype.value_or(value_.defined() ? value_.scalar_type() : kFloat32);
  const Shape own = value_.defined() ? shape_of(value_) : Shape();
  return str_cat(dtype_name(type), " ", bracketed(shape.value_or(own)));
}

Variable::Variable(InitialValue initial, VariableOptions options)
    : impl_(internal::current_variable_creator().create(initial, options)) {}

internal::VariableImpl& Variable::impl() const {
  COHORT_CHECK_STATE(impl_ != nullptr, "[variable] expected a variable, got an empty handle");
  return *impl_;
}

bool Variable::is_same_component(const Variable& other) const {
  return impl_ && other.impl_ && impl_->identity() == other.impl_->identity();
}

Tensor Variable::value() const { return impl().value(); }

using internal::Write;
Tensor Variable::assign(const Tensor& x) const { return impl().write(Write::kAssign, x); }
Tensor Variable::assign_add(const Tensor& x) const { return impl().write(Write::kAdd, x); }
Tensor Variable::assign_sub(const Tensor& x) const { return impl().write(Write::kSub, x); }
Tensor Variable::assign(double x) const { return impl().write(Write::kAssign, x); }
Tensor Variable::assign_add(double x) const { return impl().write(Write::kAdd, x); }
Tensor Variable::assign_sub(double x) const { return impl().write(Write::kSub, x); }
void Variable::assign(const PerReplica<Tensor>& x) const { impl().write(Write::kAssign, x); }
void Variable::assign_add(const PerReplica<Tensor>& x) const { impl().write(Write::kAdd, x); }
void Variable::assign_sub(const PerReplica<Tensor>& x) const { impl().write(Write::kSub, x); }

using internal::Scatter;
void Variable::scatter_add(const IndexedSlices& x) const { impl().scatter(Scatter::kAdd, x); }
void Variable::scatter_sub(const IndexedSlices& x) const { impl().scatter(Scatter::kSub, x); }
void Variable::scatter_mul(const IndexedSlices& x) const { impl().scatter(Scatter::kMul, x); }
void Variable::scatter_div(const IndexedSlices& x) const { impl().scatter(Scatter::kDiv, x); }
void Variable::scatter_min(const IndexedSlices& x) const { impl().scatter(Scatter::kMin, x); }
void Variable::scatter_max(const IndexedSlices& x) const { impl().scatter(Scatter::kMax, x); }
void Variable::scatter_update(const IndexedSlices& x) const { impl().scatter(Scatter::kUpdate, x); }

Tensor Variable::sparse_read(const Tensor& indices) const {
  impl().check_rows("[variable.sparse_read] ", indices);
  Shape rows = shape_of(indices);
  rows.insert(rows.end(), shape().begin() + 1, shape().end());
  return value().index_select(0, indices.reshape({-1})).reshape(rows);
}

const std::string& Variable::name() const { return impl().description().name; }
const Shape& Variable::shape() const { return impl().description().shape; }
DType Variable::dtype() const { return impl().description().dtype; }
Device Variable::device() const { return impl().description().devices.front(); }
bool Variable::trainable() const { return impl().description().trainable; }
Synchronization Variable::synchronization() const { return impl().description().synchronization; }
Aggregation Variable::aggregation() const { return impl().description().aggregation; }
std::vector<Variable> Variable::components() const { return impl().components(); }

Tensor& Variable::local_tensor() const {
  const int updated = current_replica() < 0 ? internal::current_update_replica() : -1;
  if (updated >= 0 && updated < impl().component_count()) return impl().component(updated).tensor;
  COHORT_CHECK_ARG(current_replica() >= 0 || impl().copies() == 1,
                   "[variable.local_tensor] expected to be inside strategy.run for \"", name(),
                   "\", which has ", impl().component_count(),
                   " components, got cross-replica "
                   "context; use value() or components()");
  return impl().local_component().tensor;
}

Tensor Variable::grad() const { return impl().local_component().tensor.grad(); }

}  // namespace cohort
