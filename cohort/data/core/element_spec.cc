// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/element_spec.h"

#include "cohort/base/check.h"
#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/rows/ragged.h"

namespace cohort::data {
namespace {

bool shapes_agree(const TensorSpec& a, const TensorSpec& b) {
  if (!a.known_rank || !b.known_rank) return true;
  if (a.shape.size() != b.shape.size()) return false;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] != kUnknownDim && b.shape[i] != kUnknownDim && a.shape[i] != b.shape[i])
      return false;
  }
  return true;
}

bool leaves_agree(const TensorSpec& a, const TensorSpec& b) {
  if (a.is_string != b.is_string) {
    // A leaf of which nothing is known may turn out to be anything.
    return a == TensorSpec::unknown() || b == TensorSpec::unknown();
  }
  const bool dtypes = a.is_string || a.dtype == b.dtype || a.dtype == DType::Undefined ||
                      b.dtype == DType::Undefined;
  return dtypes && shapes_agree(a, b);
}

TensorSpec common_leaf(const TensorSpec& a, const TensorSpec& b) {
  if (a == TensorSpec::unknown() || b == TensorSpec::unknown()) return TensorSpec::unknown();
  TensorSpec out = a;
  if (a.dtype != b.dtype) out.dtype = DType::Undefined;
  out.known_rank = a.known_rank && b.known_rank;
  if (!out.known_rank) out.shape.clear();
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    if (a.shape[i] != b.shape[i]) out.shape[i] = kUnknownDim;
  }
  return out;
}

/// Ranks and dtypes must agree, dimensions need not.
bool mergeable(const TensorSpec& a, const TensorSpec& b) {
  auto blank = [](TensorSpec s) {
    for (int64_t& d : s.shape) d = kUnknownDim;
    return s;
  };
  return leaves_agree(blank(a), blank(b));
}

}  // namespace

TensorSpec TensorSpec::unknown() { return {{}, DType::Undefined, false, false}; }

TensorSpec TensorSpec::strings(Shape shape) {
  return {std::move(shape), DType::Undefined, true, true};
}

std::string TensorSpec::to_string() const {
  if (*this == unknown()) return "?";
  std::string out = is_string ? "string" : dtype == DType::Undefined ? "?" : dtype_name(dtype);
  if (!known_rank) return out + "[...]";
  out += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ',';
    out += shape[i] == kUnknownDim ? "?" : std::to_string(shape[i]);
  }
  return out + ']';
}

ElementSpec::ElementSpec(TensorSpec leaf) : kind_(Kind::kLeaf), leaf_(std::move(leaf)) {}

ElementSpec ElementSpec::tuple(std::vector<ElementSpec> parts) {
  ElementSpec out;
  out.kind_ = Kind::kTuple;
  out.parts_ = std::move(parts);
  return out;
}

ElementSpec ElementSpec::named(std::vector<std::pair<std::string, ElementSpec>> parts) {
  ElementSpec out;
  out.kind_ = Kind::kTuple;
  for (auto& [name, part] : parts) {
    out.names_.push_back(std::move(name));
    out.parts_.push_back(std::move(part));
  }
  return out;
}

ElementSpec ElementSpec::dataset(ElementSpec element) {
  ElementSpec out;
  out.kind_ = Kind::kDataset;
  out.parts_ = {std::move(element)};
  return out;
}

ElementSpec ElementSpec::ragged(ElementSpec values, int64_t rows) {
  const int64_t splits = rows == kUnknownDim ? kUnknownDim : rows + 1;
  return ragged_parts(std::move(values), TensorSpec{{splits}, kInt64});
}

ElementSpec ElementSpec::ragged_parts(ElementSpec values, TensorSpec row_splits) {
  ElementSpec out = named({{internal::data::kRaggedNames[0], std::move(values)},
                           {internal::data::kRaggedNames[1], row_splits}});
  out.is_ragged_ = true;
  return out;
}

int64_t ElementSpec::rows() const {
  if (is_leaf()) return leaf_.known_rank && !leaf_.shape.empty() ? leaf_.shape[0] : kUnknownDim;
  if (!is_tuple() || parts_.empty()) return kUnknownDim;
  if (is_ragged()) {
    const int64_t splits = parts_[1].rows();
    return splits == kUnknownDim ? kUnknownDim : splits - 1;
  }
  const int64_t rows = parts_[0].rows();
  for (const ElementSpec& part : parts_) {
    if (part.rows() != rows) return kUnknownDim;
  }
  return rows;
}

const ElementSpec& ElementSpec::dataset_element() const {
  COHORT_CHECK_ARG(is_dataset(), "[element_spec] expected a dataset, got ", to_string());
  return parts_.front();
}

const ElementSpec& ElementSpec::operator[](std::size_t i) const {
  COHORT_CHECK_ARG(i < size(), "[element_spec] expected a component below ", size(), ", got ", i);
  return is_tuple() ? parts_[i] : *this;
}

const TensorSpec& ElementSpec::leaf() const {
  COHORT_CHECK_ARG(is_leaf(), "[element_spec] expected one component, got ", to_string());
  return leaf_;
}

std::vector<TensorSpec> ElementSpec::flat() const {
  if (is_leaf()) return {leaf_};
  if (is_dataset()) return {TensorSpec::unknown()};
  std::vector<TensorSpec> out;
  for (const ElementSpec& part : parts_) {
    for (TensorSpec& leaf : part.flat()) out.push_back(std::move(leaf));
  }
  return out;
}

std::string ElementSpec::to_string() const {
  if (is_unknown()) return "?";
  if (is_leaf()) return leaf_.to_string();
  if (is_dataset()) return "dataset(" + parts_.front().to_string() + ")";
  std::string out = internal::data::has_ragged_names(names_) && !is_ragged_ ? "plain (" : "(";
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (i > 0) out += ", ";
    if (!names_.empty()) out += names_[i] + " ";
    out += parts_[i].to_string();
  }
  return out + ")";
}

bool ElementSpec::compatible_with(const Element& element) const {
  return compatible_with(element.spec());
}

bool ElementSpec::compatible_with(const ElementSpec& other) const {
  if (is_unknown() || other.is_unknown()) return true;
  if (kind_ != other.kind_) return false;
  if (is_leaf()) return leaves_agree(leaf_, other.leaf_);
  if (parts_.size() != other.parts_.size() || names_ != other.names_ ||
      is_ragged_ != other.is_ragged_) {
    return false;
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].compatible_with(other.parts_[i])) return false;
  }
  return true;
}

ElementSpec ElementSpec::common(const std::string& operation, const ElementSpec& a,
                                const ElementSpec& b) {
  if (a.is_unknown() || b.is_unknown()) return {};
  const bool same = a.kind_ == b.kind_ && a.parts_.size() == b.parts_.size() &&
                    a.names_ == b.names_ && a.is_ragged_ == b.is_ragged_ &&
                    (!a.is_leaf() || mergeable(a.leaf_, b.leaf_));
  COHORT_CHECK_ARG(same, operation, " expected elements like ", a.to_string(), ", got ",
                   b.to_string());
  if (a.is_leaf()) return common_leaf(a.leaf_, b.leaf_);
  ElementSpec out = a;
  for (std::size_t i = 0; i < a.parts_.size(); ++i) {
    out.parts_[i] = common(operation, a.parts_[i], b.parts_[i]);
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << spec.to_string();
}
std::ostream& operator<<(std::ostream& out, const ElementSpec& spec) {
  return out << spec.to_string();
}

}  // namespace cohort::data
