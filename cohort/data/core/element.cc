// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/element.h"

#include <c10/util/accumulate.h>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/packed_strings.h"
#include "cohort/data/core/internal/rows/ragged.h"

namespace cohort::internal::data {

const Element& DeferredElement::value() const {
  if (is_computed()) return constant_value();
  const base::MutexLock lock(mutex_);
  if (!ready_.load(std::memory_order_relaxed)) {
    value_ = compute();
    ready_.store(true, std::memory_order_release);
  }
  return constant_value();
}

ElementSpec batched_spec(const ElementSpec& row, int64_t rows) {
  if (row.is_unknown()) return row;
  COHORT_CHECK_ARG(!row.is_dataset(), "[dataset.batch] expected tensors and strings, got ",
                   row.to_string(), "; flat_map makes elements of datasets");
  if (row.is_ragged()) return ElementSpec::ragged(with_rows(row, kUnknownDim), rows);
  if (row.is_leaf()) {
    TensorSpec leaf = row.leaf();
    if (leaf.known_rank) leaf.shape.insert(leaf.shape.begin(), rows);
    return leaf;
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < row.size(); ++i) {
    ElementSpec part = batched_spec(row[i], rows);
    if (row.names().empty()) {
      parts.push_back(std::move(part));
    } else {
      named.emplace_back(row.names()[i], std::move(part));
    }
  }
  return row.names().empty() ? ElementSpec::tuple(std::move(parts))
                             : ElementSpec::named(std::move(named));
}

}  // namespace cohort::internal::data

namespace cohort::data {
namespace {
constexpr std::size_t kTensor = 1, kStrings = 2, kTuple = 3, kDeferred = 4, kDataset = 5;
}

Element::Element(Tensor t) : value_(std::move(t)) {}

/// Threads: immutable to readers. Strings that came packed are unpacked for the first who asks for
/// them as std::string.
class Element::Strings {
 public:
  explicit Strings(std::string one) { values_.push_back(std::move(one)); }
  Strings(std::vector<std::string> values, Shape shape)
      : shape_(std::move(shape)), values_(std::move(values)) {}
  Strings(internal::data::PackedStrings values, Shape shape)
      : shape_(std::move(shape)), packed_(std::move(values)) {}

  const Shape& shape() const { return shape_; }
  const std::vector<std::string>& values() const {
    if (packed_.size() == 0) return values_;
    std::call_once(unpacked_, [this] {
      values_.reserve(packed_.size());
      for (std::size_t i = 0; i < packed_.size(); ++i) values_.emplace_back(packed_[i]);
    });
    return values_;
  }
  std::size_t size() const { return packed_.size() == 0 ? values_.size() : packed_.size(); }
  std::string_view view(std::size_t i) const {
    return packed_.size() == 0 ? std::string_view(values_[i]) : packed_[i];
  }

 private:
  Shape shape_;
  internal::data::PackedStrings packed_;
  mutable std::once_flag unpacked_;
  mutable std::vector<std::string> values_;  ///< With packed ones: guarded by unpacked_.
};

namespace {

void check_count(const Shape& shape, std::size_t values) {
  COHORT_CHECK_ARG(c10::multiply_integers(shape) == static_cast<int64_t>(values),
                   "[element] expected strings of shape ", bracketed(shape), ", got ", values);
}

}  // namespace

Element::Element(std::string s) : value_(std::make_shared<const Strings>(std::move(s))) {}
Element::Element(std::vector<std::string> batch) {
  const auto rows = static_cast<int64_t>(batch.size());
  value_ = std::make_shared<const Strings>(std::move(batch), Shape{rows});
}
Element::Element(std::vector<std::string> values, Shape shape) {
  check_count(shape, values.size());
  value_ = std::make_shared<const Strings>(std::move(values), std::move(shape));
}
Element Element::packed(internal::data::PackedStrings values, Shape shape) {
  check_count(shape, values.size());
  Element out;
  out.value_ = std::make_shared<const Strings>(std::move(values), std::move(shape));
  return out;
}
Element::Element(std::initializer_list<Element> parts)
    : value_(std::make_shared<const Tuple>(Tuple{std::vector<Element>(parts), {}})) {}

Element Element::tuple(std::vector<Element> parts) {
  Element out;
  out.value_ = std::make_shared<const Tuple>(Tuple{std::move(parts), {}});
  return out;
}

Element Element::named(std::vector<std::pair<std::string, Element>> parts) {
  Tuple tuple;
  for (auto& [name, part] : parts) {
    tuple.names.push_back(std::move(name));
    tuple.parts.push_back(std::move(part));
  }
  Element out;
  out.value_ = std::make_shared<const Tuple>(std::move(tuple));
  return out;
}

Element Element::ragged(Element values, Tensor row_splits) {
  const Element splits(std::move(row_splits));
  internal::data::check_ragged_parts(values, splits);
  return ragged_parts(std::move(values), splits);
}

Element Element::ragged_parts(Element values, Element row_splits) {
  static const std::vector<std::string> kNames(internal::data::kRaggedNames.begin(),
                                               internal::data::kRaggedNames.end());
  Element out;
  out.value_ = std::make_shared<const Tuple>(
      Tuple{{std::move(values), std::move(row_splits)}, kNames, /*is_ragged=*/true});
  return out;
}

Element Element::deferred(std::shared_ptr<const internal::data::DeferredElement> source) {
  Element out;
  out.value_ = std::move(source);
  return out;
}

std::shared_ptr<const internal::data::DeferredElement> Element::uncomputed() const {
  const auto* deferred = std::get_if<kDeferred>(&value_);
  return deferred == nullptr || (*deferred)->is_computed() ? nullptr : *deferred;
}

const Element& Element::resolved() const {
  const auto* deferred = std::get_if<kDeferred>(&value_);
  return deferred == nullptr ? *this : (*deferred)->value();
}

const Element::Tuple* Element::tuple_part() const {
  const auto* tuple = std::get_if<kTuple>(&resolved().value_);
  return tuple == nullptr ? nullptr : tuple->get();
}

const Element::Strings* Element::string_part() const {
  const auto* strings = std::get_if<kStrings>(&resolved().value_);
  return strings == nullptr ? nullptr : strings->get();
}

void Element::refuse(const char* expected) const {
  throw InvalidArgument(str_cat("[element] expected ", expected, ", got ",
                                has_value() ? spec().to_string() : "an element without a value"));
}

bool Element::is_tuple() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    return (*deferred)->row_spec().is_tuple();
  }
  return value_.index() == kTuple;
}

bool Element::is_tensor() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    const ElementSpec& row = (*deferred)->row_spec();
    return row.is_leaf() && !row.leaf().is_string;
  }
  return value_.index() == kTensor;
}

bool Element::is_string() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    const ElementSpec& row = (*deferred)->row_spec();
    return row.is_leaf() && row.leaf().is_string;
  }
  return value_.index() == kStrings;
}

bool Element::is_dataset() const { return value_.index() == kDataset; }

bool Element::is_ragged() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    return (*deferred)->row_spec().is_ragged();
  }
  return value_.index() == kTuple && std::get<kTuple>(value_)->is_ragged;
}

std::size_t Element::size() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) return (*deferred)->row_spec().size();
  return is_tuple() ? std::get<kTuple>(value_)->parts.size() : 1;
}

void Element::check_pair() const {
  if (is_tuple() && size() == 2) return;
  refuse("two components for [x, y]; element.as<...>() and dataset.as<...>() take any number");
}

int64_t Element::rows() const {
  switch (value_.index()) {
    case kDeferred:
      return std::get<kDeferred>(value_)->rows();
    case kTensor: {
      const Tensor& t = std::get<kTensor>(value_);
      return t.dim() == 0 ? -1 : t.size(0);
    }
    case kStrings: {
      const Strings& s = *std::get<kStrings>(value_);
      return s.shape().empty() ? -1 : s.shape().front();
    }
    case kTuple: {
      const Tuple& t = *std::get<kTuple>(value_);
      if (t.is_ragged) return t.parts[1].rows() - 1;
      return t.parts.empty() ? -1 : t.parts.front().rows();
    }
    default:
      return -1;
  }
}

const std::vector<std::string>& Element::names() const {
  static const std::vector<std::string> kNone;
  const Tuple* tuple = tuple_part();
  return tuple == nullptr ? kNone : tuple->names;
}

const Element& Element::operator[](std::size_t i) const& {
  COHORT_CHECK_ARG(i < size(), "[element] expected a component below ", size(), ", got ", i);
  const Tuple* tuple = tuple_part();
  return tuple == nullptr ? *this : tuple->parts[i];
}

const Element& Element::operator[](std::string_view name) const& {
  const std::vector<std::string>& all = names();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == name) return (*this)[i];
  }
  throw InvalidArgument(
      str_cat("[element] expected one of the names ", bracketed(all), ", got ", name));
}

const Tensor& Element::tensor() const& {
  const auto* t = std::get_if<kTensor>(&resolved().value_);
  if (t == nullptr) refuse("one tensor");
  return *t;
}

const std::string& Element::string() const& {
  const Strings* s = string_part();
  if (s == nullptr || !s->shape().empty()) refuse("one string");
  return s->values().front();
}

const std::vector<std::string>& Element::strings() const& {
  const Strings* s = string_part();
  if (s == nullptr || s->shape().empty()) refuse("a batch of strings");
  return s->values();
}

std::vector<std::string_view> Element::string_views() const {
  const Strings* s = string_part();
  if (s == nullptr) refuse("strings");
  std::vector<std::string_view> out;
  out.reserve(s->size());
  for (std::size_t i = 0; i < s->size(); ++i) out.push_back(s->view(i));
  return out;
}

ElementSpec Element::spec() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    return internal::data::batched_spec((*deferred)->row_spec(), (*deferred)->rows());
  }
  if (const auto* t = std::get_if<kTensor>(&value_)) {
    return TensorSpec{shape_of(*t), t->scalar_type()};
  }
  if (const Strings* s = string_part()) return TensorSpec::strings(s->shape());
  if (is_dataset()) return ElementSpec::dataset(std::get<kDataset>(value_)->spec());
  const Tuple* tuple = tuple_part();
  if (tuple == nullptr) return {};
  if (tuple->is_ragged) {
    return ElementSpec::ragged_parts(tuple->parts[0].spec(), tuple->parts[1].spec().leaf());
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < tuple->parts.size(); ++i) {
    parts.push_back(tuple->parts[i].spec());
    if (!tuple->names.empty()) named.emplace_back(tuple->names[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

Element Element::materialize() const {
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) return (*deferred)->value();
  const Tuple* tuple = tuple_part();
  if (tuple == nullptr) return *this;
  Tuple out{{}, tuple->names, tuple->is_ragged};
  for (const Element& part : tuple->parts) out.parts.push_back(part.materialize());
  Element element;
  element.value_ = std::make_shared<const Tuple>(std::move(out));
  return element;
}

Element Element::slice(int64_t begin, int64_t count) const {
  COHORT_CHECK_ARG(begin >= 0 && count >= 0 && begin <= rows() - count,
                   "[element.slice] expected rows within ", rows(), ", got ", count, " from ",
                   begin, " on");
  if (const auto* deferred = std::get_if<kDeferred>(&value_)) {
    if (!(*deferred)->is_computed()) return (*deferred)->slice(begin, count);
  }
  const Element& self = resolved();
  if (const auto* t = std::get_if<kTensor>(&self.value_)) return t->narrow(0, begin, count);
  if (self.is_ragged()) return internal::data::ragged_slice(self, begin, count);
  if (const Strings* s = string_part()) {
    Shape shape = s->shape();
    shape.front() = count;
    const int64_t row = c10::multiply_integers(shape.begin() + 1, shape.end());
    internal::data::PackedStrings part;
    for (int64_t i = begin * row; i < (begin + count) * row; ++i) {
      part.add(s->view(static_cast<std::size_t>(i)));
    }
    return packed(std::move(part), std::move(shape));
  }
  const Tuple* tuple = tuple_part();
  Tuple out{{}, tuple->names};
  for (const Element& part : tuple->parts) {
    COHORT_CHECK_ARG(part.rows() == rows(),
                     "[element.slice] expected components of equally many rows, got ",
                     spec().to_string());
    out.parts.push_back(part.slice(begin, count));
  }
  Element element;
  element.value_ = std::make_shared<const Tuple>(std::move(out));
  return element;
}

}  // namespace cohort::data
