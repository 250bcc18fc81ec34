// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable.h"

#include <algorithm>
#include <ostream>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/write.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/read_dtype.h"

namespace cohort {

namespace {

// Numbers travel as doubles.
void refuse_rounded(const char* operation, DType dtype) {
  COHORT_CHECK_ARG(!at::isIntegralType(dtype, /*includeBool=*/true), operation,
                   "expected an integer that a double holds, for a variable of ", dtype_name(dtype),
                   ", got one beyond 2^53; give it as a tensor, as from_vector makes it");
}

}  // namespace

InitialValue::InitialValue(Tensor value) : value_(std::move(value)) {}
InitialValue::InitialValue(double value) : value_(scalar(value, kFloat64)), weak_dtype_(true) {}

Tensor InitialValue::make(const std::optional<Shape>& shape, std::optional<DType> dtype) const {
  if (make_) {
    COHORT_CHECK_ARG(shape.has_value(),
                     "[variable] expected a shape with a function as initial value, got none");
    return make_part(*shape, {*shape, Shape(shape->size())}, dtype);
  }
  COHORT_CHECK_ARG(value_.defined(),
                   "[variable] expected an initial value, got an undefined tensor");
  if (weak_dtype_) {
    if (is_rounded_) refuse_rounded("[variable] ", dtype.value_or(kFloat32));
    return internal::variables::number_of("[variable] ", value_.item<double>(),
                                          dtype.value_or(kFloat32), shape.value_or(Shape{}));
  }
  COHORT_CHECK_ARG(!dtype || c10::canCast(value_.scalar_type(), *dtype), "[variable] expected an ",
                   "initial value of ", dtype_name(*dtype), ", got ",
                   dtype_name(value_.scalar_type()),
                   ", of which it would lose a part; convert it with to() if that is meant");
  if (dtype) internal::variables::check_integers("[variable] ", *dtype, value_);
  Tensor value = dtype ? value_.to(*dtype) : value_;
  COHORT_CHECK_ARG(!shape || *shape == shape_of(value), "[variable] expected shape ",
                   bracketed(shape.value_or(Shape{})), ", got an initial value of shape ",
                   bracketed(value.sizes()));
  return value.detach().contiguous();
}

namespace {

// What such a store makes for this process alone (metrics) is on a device of its own.
bool is_remote(const internal::variables::VariableImpl& variable) {
  if (variable.store() == nullptr || !variable.store()->is_remote()) return false;
  const std::vector<Device>& devices = variable.description().devices;
  return devices.empty() || devices.front().job() != "localhost";
}

bool lies_in(const Shape& part, const PartitionInfo& of) {
  if (part.size() != of.shape.size() || part.size() != of.offset.size()) return false;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const int64_t begin = of.offset[i];
    if (begin < 0 || part[i] < 0 || begin > of.shape[i] || part[i] > of.shape[i] - begin) {
      return false;
    }
  }
  return true;
}

}  // namespace

Tensor InitialValue::make_part(const Shape& part, const PartitionInfo& of,
                               std::optional<DType> dtype) const {
  COHORT_CHECK_ARG(lies_in(part, of), "[variable] expected a part of a variable of shape ",
                   bracketed(of.shape), ", got ", bracketed(part), " from ", bracketed(of.offset),
                   " on");
  if (make_) {
    const Tensor made = make_(part, dtype.value_or(kFloat32), of);
    COHORT_CHECK_ARG(shape_of(made) == part, "[variable] expected an initial value of shape ",
                     bracketed(part), ", got ", bracketed(made.sizes()));
    // One number for all of them takes no memory until it is where the variable is.
    const bool is_one_number = made.storage().nbytes() == made.itemsize();
    return is_one_number ? made.detach() : made.detach().contiguous();
  }
  if (weak_dtype_) return make(part, dtype);
  Tensor cut = make(of.shape, dtype);
  for (std::size_t i = 0; i < part.size(); ++i) {
    cut = cut.narrow(static_cast<int64_t>(i), of.offset[i], part[i]);
  }
  return cut.contiguous();
}

std::string InitialValue::describe(const std::optional<Shape>& shape,
                                   std::optional<DType> dtype) const {
  const bool has_dtype = value_.defined() && !weak_dtype_;
  const DType type = dtype.value_or(has_dtype ? value_.scalar_type() : kFloat32);
  const Shape own = value_.defined() ? shape_of(value_) : Shape();
  return str_cat(dtype_name(type), " ", bracketed(shape.value_or(own)));
}

Variable::Variable(InitialValue initial, VariableOptions options)
    : impl_(internal::variables::current_variable_creator().create(initial, options)) {}

bool Variable::is_same_component(const Variable& other) const {
  return impl_ && other.impl_ && impl_->identity() == other.impl_->identity();
}

namespace {
// Undefined: as they are.
constinit thread_local DType t_read_as __attribute__((tls_model("initial-exec"))) =
    DType::Undefined;
}  // namespace

void internal::variables::read_weights_as(std::optional<DType> dtype) {
  t_read_as = dtype.value_or(DType::Undefined);
}

Tensor Variable::value() const {
  internal::variables::VariableImpl& variable = use();
  if (t_read_as == DType::Undefined) [[likely]]
    return variable.value();
  const bool cast =
      variable.description().trainable && at::isFloatingType(variable.description().dtype);
  return cast ? variable.value().to(t_read_as) : variable.value();
}

using internal::variables::Write;
Tensor Variable::assign(const Tensor& x) const { return use().write(Write::kAssign, x); }
Tensor Variable::assign_add(const Tensor& x) const { return use().write(Write::kAdd, x); }
Tensor Variable::assign_sub(const Tensor& x) const { return use().write(Write::kSub, x); }
Tensor Variable::assign(double x) const { return use().write(Write::kAssign, x); }
Tensor Variable::assign_add(double x) const { return use().write(Write::kAdd, x); }
Tensor Variable::assign_sub(double x) const { return use().write(Write::kSub, x); }
void Variable::assign(const PerReplica<Tensor>& x) const { use().write(Write::kAssign, x); }
void Variable::assign_add(const PerReplica<Tensor>& x) const { use().write(Write::kAdd, x); }
void Variable::assign_sub(const PerReplica<Tensor>& x) const { use().write(Write::kSub, x); }

using internal::variables::Scatter;
void Variable::scatter_add(const IndexedSlices& x) const { use().scatter(Scatter::kAdd, x); }
void Variable::scatter_sub(const IndexedSlices& x) const { use().scatter(Scatter::kSub, x); }
void Variable::scatter_mul(const IndexedSlices& x) const { use().scatter(Scatter::kMul, x); }
void Variable::scatter_div(const IndexedSlices& x) const { use().scatter(Scatter::kDiv, x); }
void Variable::scatter_min(const IndexedSlices& x) const { use().scatter(Scatter::kMin, x); }
void Variable::scatter_max(const IndexedSlices& x) const { use().scatter(Scatter::kMax, x); }
void Variable::scatter_update(const IndexedSlices& x) const { use().scatter(Scatter::kUpdate, x); }

Tensor Variable::sparse_read(const Tensor& indices) const {
  use().check_rows("[variable.sparse_read] ", indices);
  Shape rows = shape_of(indices);
  rows.insert(rows.end(), shape().begin() + 1, shape().end());
  return use().gather_rows(indices.reshape({-1})).reshape(rows);
}

const std::string& Variable::name() const { return use().description().name; }
const Shape& Variable::shape() const { return use().description().shape; }
DType Variable::dtype() const { return use().description().dtype; }

void Variable::check_rounds(const char* operation) const {
  refuse_rounded(operation, use("assign").description().dtype);
}
Device Variable::device() const {
  const std::vector<Device>& devices = use().description().devices;
  const auto own = static_cast<std::size_t>(std::max(0, current_replica()));
  return devices[own < devices.size() ? own : 0];
}
bool Variable::trainable() const { return use().description().trainable; }
Synchronization Variable::synchronization() const { return use().description().synchronization; }
Aggregation Variable::aggregation() const { return use().description().aggregation; }
std::vector<Variable> Variable::components() const { return use().components(); }
std::vector<Tensor> Variable::read_all() const {
  std::vector<Tensor> all;
  for (const Variable& each : components()) all.push_back(each.value());
  return all;
}

Tensor& Variable::local_tensor() const {
  const int updated = current_replica() < 0 ? internal::runtime::current_update_replica() : -1;
  if (updated >= 0 && updated < use().leaf_count()) return use().leaf_of(updated).tensor;
  COHORT_CHECK_ARG(!is_remote(use()),
                   "[variable.local_tensor] expected a variable of this process, got ",
                   label(use()), ", which parameter servers keep; use value() and assign()");
  COHORT_CHECK_ARG(current_replica() >= 0 || use().copies() == 1,
                   "[variable.local_tensor] expected to be inside strategy.run for ", label(use()),
                   ", which has ", use().leaf_count(),
                   " components, got cross-replica "
                   "context; use value() or components()");
  return use().leaf().tensor;
}

Tensor Variable::grad() const { return use().leaf().tensor.grad(); }

namespace {

void print_one(std::ostream& out, const Variable& v, const Tensor& value) {
  out << "<Variable '" << v.name() << "' shape=" << bracketed(v.shape())
      << " dtype=" << dtype_name(v.dtype()) << ", value=" << internal::runtime::values_text(value)
      << ">";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Variable& v) {
  if (!v) return out << "<Variable, empty handle>";
  // What the other replicas have may be written while they run.
  if (current_replica() >= 0 || v.impl().copies() == 1) {
    print_one(out, v, is_remote(v.impl()) ? v.value() : v.impl().leaf().tensor);
    return out;
  }
  const bool on_read = v.synchronization() == Synchronization::kOnRead;
  out << (on_read ? "SyncOnReadVariable:{" : "MirroredVariable:{");
  const std::vector<Variable> components = v.components();
  for (std::size_t i = 0; i < components.size(); ++i) {
    out << (i == 0 ? "\n  " : ",\n  ") << i << ": ";
    print_one(out, components[i], components[i].impl().leaf().tensor);
  }
  return out << "\n}";
}

}  // namespace cohort
