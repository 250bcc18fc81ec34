// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/keras_tensor.h"

#include <algorithm>
#include <ostream>

#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"

namespace cohort::keras {

KerasTensor::KerasTensor(std::initializer_list<KerasTensor> parts)
    : is_tuple_(true), parts_(parts) {}

KerasTensor KerasTensor::tuple(std::vector<KerasTensor> parts) {
  KerasTensor all;
  all.is_tuple_ = true;
  all.parts_ = std::move(parts);
  return all;
}

KerasTensor KerasTensor::named(std::vector<std::pair<std::string, KerasTensor>> parts) {
  KerasTensor all = tuple({});
  for (auto& [name, part] : parts) {
    COHORT_CHECK_ARG(std::ranges::count(all.names_, name) == 0,
                     "[keras_tensor] expected unique names, got \"", name, "\" twice");
    all.names_.push_back(std::move(name));
    all.parts_.push_back(std::move(part));
  }
  return all;
}

KerasTensor KerasTensor::of_node(const std::shared_ptr<const internal::CallNode>& node,
                                 const ElementSpec& spec, int& first) {
  if (!spec.is_tuple()) {
    KerasTensor one;
    one.node_ = node;
    one.output_ = first++;
    one.spec_ = spec.is_leaf() ? spec.leaf() : TensorSpec::unknown();
    return one;
  }
  KerasTensor all = tuple({});
  all.names_ = spec.names();
  for (std::size_t i = 0; i < spec.size(); ++i) all.parts_.push_back(of_node(node, spec[i], first));
  return all;
}

const KerasTensor& KerasTensor::operator[](std::size_t i) const {
  COHORT_CHECK_ARG(i < size() && has_value(), "[keras_tensor] expected an index below ",
                   has_value() ? size() : 0, ", got ", i);
  return is_tuple_ ? parts_[i] : *this;
}

const KerasTensor& KerasTensor::operator[](std::string_view name) const {
  const auto at = std::ranges::find(names_, name);
  COHORT_CHECK_ARG(at != names_.end(), "[keras_tensor] expected one of the names ",
                   join(names_, ", "), ", got \"", name, "\"");
  return parts_[static_cast<std::size_t>(at - names_.begin())];
}

std::vector<KerasTensor> KerasTensor::flat() const {
  if (!has_value()) return {};
  if (!is_tuple_) return {*this};
  std::vector<KerasTensor> all;
  for (const KerasTensor& part : parts_) {
    for (KerasTensor& one : part.flat()) all.push_back(std::move(one));
  }
  return all;
}

ElementSpec KerasTensor::spec() const {
  if (!is_tuple_) return leaf();
  std::vector<ElementSpec> specs;
  for (const KerasTensor& part : parts_) specs.push_back(part.spec());
  if (names_.empty()) return ElementSpec::tuple(std::move(specs));
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < names_.size(); ++i) named.emplace_back(names_[i], specs[i]);
  return ElementSpec::named(std::move(named));
}

const TensorSpec& KerasTensor::leaf() const {
  COHORT_CHECK_ARG(
      node_ != nullptr,
      "[keras_tensor] expected one symbolic tensor, such as keras::Input() gives, got ",
      is_tuple_ ? str_cat("a nest of ", parts_.size()) : std::string("nothing"));
  return spec_;
}

const std::shared_ptr<const internal::CallNode>& KerasTensor::node() const {
  leaf();
  return node_;
}

std::ostream& operator<<(std::ostream& out, const KerasTensor& x) {
  if (!x.has_value()) return out << "<KerasTensor, nothing>";
  if (x.node_ != nullptr) {
    std::string shape = internal::none_shape(x.shape());
    return out << "<KerasTensor shape=(" << shape.substr(1, shape.size() - 2)
               << "), dtype=" << dtype_name(x.dtype()) << '>';
  }
  out << '(';
  for (std::size_t i = 0; i < x.size(); ++i) {
    out << (i == 0 ? "" : ", ");
    if (!x.names_.empty()) out << x.names_[i] << ": ";
    out << x[i];
  }
  return out << ')';
}

}  // namespace cohort::keras
