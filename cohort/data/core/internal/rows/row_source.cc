// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/row_source.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/convert_rows.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/ragged.h"
#include "cohort/data/core/internal/rows/upload.h"
#include "cohort/data/core/internal/state.h"

namespace cohort::internal::data {
namespace {

using Rows = std::shared_ptr<const std::vector<int64_t>>;

/// Row numbers [begin, begin + count) of a batch, and where the rows are.
class DeferredRows final : public DeferredElement {
 public:
  DeferredRows(std::shared_ptr<const RowSource> source, Rows rows, int64_t begin, int64_t count)
      : source_(std::move(source)), rows_(std::move(rows)), begin_(begin), count_(count) {}

  int64_t rows() const override { return count_; }
  const ElementSpec& row_spec() const override { return source_->spec(); }
  Element slice(int64_t begin, int64_t count) const override {
    return Element::deferred(std::make_shared<DeferredRows>(source_, rows_, begin_ + begin, count));
  }
  Element join(std::span<const std::shared_ptr<const DeferredElement>> parts) const override {
    auto rows = std::make_shared<std::vector<int64_t>>();
    for (const auto& part : parts) {
      const auto* other = dynamic_cast<const DeferredRows*>(part.get());
      if (other == nullptr || other->source_ != source_) return {};
      const std::span<const int64_t> numbers = other->numbers();
      rows->insert(rows->end(), numbers.begin(), numbers.end());
    }
    return source_->gather_later(std::move(rows));
  }

 protected:
  Element compute() const override { return source_->gather(numbers()); }

 private:
  std::span<const int64_t> numbers() const {
    return std::span(*rows_).subspan(static_cast<std::size_t>(begin_),
                                     static_cast<std::size_t>(count_));
  }

  const std::shared_ptr<const RowSource> source_;
  const Rows rows_;
  const int64_t begin_;
  const int64_t count_;
};

/// One component, laid out row after row.
class Column {
 public:
  Column(const Tensor& data, float divisor)
      : data_(data.detach().contiguous().resolve_conj().resolve_neg()), divisor_(divisor) {
    COHORT_CHECK_ARG(data.device().is_cpu(),
                     "[dataset.from_tensor_slices] expected tensors in CPU memory, got one on ",
                     data.device().str());
    COHORT_CHECK_ARG(divisor == 0 || data.scalar_type() == kUint8,
                     "[dataset.from_tensor_slices] expected uint8 to scale, got ",
                     dtype_name(data.scalar_type()));
    row_shape_ = shape_of(data_);
    row_shape_.erase(row_shape_.begin());
    row_values_ = 1;
    for (int64_t d : row_shape_) row_values_ *= d;
  }

  TensorSpec spec() const { return {row_shape_, dtype()}; }

  Tensor gather(std::span<const int64_t> rows, bool single) const {
    Shape shape = row_shape_;
    if (!single) shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
    Tensor out = single ? empty(shape, dtype()) : batch_memory(shape, dtype());
    const auto* from = static_cast<const uint8_t*>(data_.const_data_ptr());
    if (divisor_ == 0) {
      gather_rows(from, row_values_ * static_cast<int64_t>(data_.element_size()), rows,
                  static_cast<uint8_t*>(out.data_ptr()));
    } else {
      gather_rows_divided(from, row_values_, divisor_, rows, static_cast<float*>(out.data_ptr()));
    }
    return out;
  }

 private:
  DType dtype() const { return divisor_ == 0 ? data_.scalar_type() : kFloat32; }

  Tensor data_;
  float divisor_;
  Shape row_shape_;
  int64_t row_values_ = 0;
};

/// A tree of columns: the structure of the element.
struct ColumnTree {
  std::unique_ptr<Column> tensor;
  std::vector<std::string> strings;
  Element ragged;  ///< Rows of unlike lengths.
  std::vector<ColumnTree> parts;
  ElementSpec spec;

  Element gather(std::span<const int64_t> rows, bool single) const {
    if (tensor != nullptr) return tensor->gather(rows, single);
    if (ragged.has_value()) return gather_ragged(rows, single);
    if (spec.is_leaf()) return gather_strings(rows, single);
    if (spec.names().empty()) {
      std::vector<Element> out;
      out.reserve(parts.size());
      for (const ColumnTree& part : parts) out.push_back(part.gather(rows, single));
      return Element::tuple(std::move(out));
    }
    std::vector<std::pair<std::string, Element>> out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      out.emplace_back(spec.names()[i], parts[i].gather(rows, single));
    }
    return Element::named(std::move(out));
  }

  Element gather_ragged(std::span<const int64_t> rows, bool single) const {
    if (single) return ragged_row(ragged, rows.front());
    if (rows.empty()) return ragged.slice(0, 0);
    std::vector<Element> taken;
    taken.reserve(rows.size());
    for (int64_t row : rows) taken.push_back(ragged.slice(row, 1));
    return concatenate_ragged(taken, "[dataset.from_tensor_slices]");
  }

  Element gather_strings(std::span<const int64_t> rows, bool single) const {
    Shape shape = spec.leaf().shape;
    if (single && shape.empty()) return strings[static_cast<std::size_t>(rows.front())];
    const int64_t each = c10::multiply_integers(shape);
    std::vector<std::string> out;
    out.reserve(rows.size() * static_cast<std::size_t>(each));
    for (int64_t row : rows) {
      const auto from = strings.begin() + row * each;
      out.insert(out.end(), from, from + each);
    }
    if (!single) shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
    return Element(std::move(out), std::move(shape));
  }
};

class TensorRows final : public RowSource {
 public:
  TensorRows(const Element& element, std::span<const float> divisors)
      : size_(element.rows()), tree_(build(element, divisors)) {}

  int64_t size() const override { return size_; }
  const ElementSpec& spec() const override { return tree_.spec; }
  Element row(int64_t index) const override { return tree_.gather({&index, 1}, true); }
  Element gather(std::span<const int64_t> rows) const override { return tree_.gather(rows, false); }

 private:
  ColumnTree build(const Element& element, std::span<const float> divisors) {
    ColumnTree out;
    if (!element.is_tuple() || element.is_ragged()) {
      COHORT_CHECK_ARG(element.rows() >= 0,
                       "[dataset.from_tensor_slices] expected components with "
                       "a first dimension to slice, got ",
                       element.spec().to_string());
      COHORT_CHECK_ARG(element.rows() == size_, "[dataset.from_tensor_slices] expected ", size_,
                       " rows in every component, got ", element.rows());
      if (element.is_ragged()) {
        out.spec = with_rows(element.spec()[0], kUnknownDim);
        out.ragged = element;
        return out;
      }
      const float divisor = leaf_ < divisors.size() ? divisors[leaf_] : 0;
      ++leaf_;
      if (element.is_string()) {
        out.strings = element.strings();
        Shape shape = element.spec().leaf().shape;
        shape.erase(shape.begin());
        out.spec = TensorSpec::strings(std::move(shape));
      } else {
        out.tensor = std::make_unique<Column>(element.tensor(), divisor);
        out.spec = out.tensor->spec();
      }
      return out;
    }
    std::vector<ElementSpec> specs;
    std::vector<std::pair<std::string, ElementSpec>> named;
    for (std::size_t i = 0; i < element.size(); ++i) {
      out.parts.push_back(build(element[i], divisors));
      specs.push_back(out.parts.back().spec);
      if (!element.names().empty()) named.emplace_back(element.names()[i], specs.back());
    }
    out.spec =
        named.empty() ? ElementSpec::tuple(std::move(specs)) : ElementSpec::named(std::move(named));
    return out;
  }

  const int64_t size_;
  std::size_t leaf_ = 0;  ///< Only while building.
  const ColumnTree tree_;
};

class RangeRows final : public RowSource {
 public:
  RangeRows(int64_t begin, int64_t step, int64_t size) : begin_(begin), step_(step), size_(size) {}

  int64_t size() const override { return size_; }
  const ElementSpec& spec() const override { return spec_; }
  Element row(int64_t index) const override {
    Tensor out = empty({}, kInt64);
    *out.mutable_data_ptr<int64_t>() = value(index);
    return out;
  }
  Element gather(std::span<const int64_t> rows) const override {
    Tensor out = empty({static_cast<int64_t>(rows.size())}, kInt64);
    auto* values = out.mutable_data_ptr<int64_t>();
    for (int64_t row : rows) *values++ = value(row);
    return out;
  }

 private:
  /// Fits, but row * step_ need not: unsigned numbers wrap.
  int64_t value(int64_t row) const {
    return static_cast<int64_t>(static_cast<uint64_t>(begin_) +
                                static_cast<uint64_t>(row) * static_cast<uint64_t>(step_));
  }

  const int64_t begin_;
  const int64_t step_;
  const int64_t size_;
  const ElementSpec spec_ = TensorSpec{{}, kInt64};
};

}  // namespace

void RowSource::check(int64_t row) const {
  if (row < 0 || row >= size()) StateReader::fail();
}

Element RowSource::gather_later(Rows rows) const {
  const auto count = static_cast<int64_t>(rows->size());
  return Element::deferred(
      std::make_shared<DeferredRows>(shared_from_this(), std::move(rows), 0, count));
}

std::shared_ptr<const RowSource> make_tensor_rows(const Element& element,
                                                  std::vector<float> divisors) {
  COHORT_CHECK_ARG(element.has_value() && element.rows() >= 0,
                   "[dataset.from_tensor_slices] expected components with a first dimension to "
                   "slice, got ",
                   element.spec().to_string());
  return std::make_shared<TensorRows>(element, divisors);
}

std::shared_ptr<const RowSource> make_range_rows(int64_t begin, int64_t end, int64_t step) {
  COHORT_CHECK_ARG(step != 0, "[dataset.range] expected a step other than 0");
  // In 128 bits: the distance of two int64 numbers, and -step, need more than 64.
  const __int128 wide = static_cast<__int128>(end) - begin;
  const __int128 stride = step;
  const __int128 count = stride > 0 ? (wide + stride - 1) / stride : (wide + stride + 1) / stride;
  COHORT_CHECK_ARG(count <= std::numeric_limits<int64_t>::max(),
                   "[dataset.range] expected at most 2^63 - 1 elements, got ", begin, " to ", end);
  const auto size = static_cast<int64_t>(std::max<__int128>(0, count));
  return std::make_shared<RangeRows>(begin, step, size);
}

}  // namespace cohort::internal::data
