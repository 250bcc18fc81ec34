// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/csv/internal/csv_columns.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/packed_strings.h"

namespace cohort::internal::data {
namespace {

/// A number too near to zero for from_chars is zero, or the nearest one below the normal ones; one
/// that is too far from it is no number of the type.
template <class T>
bool parse_tiny(std::string_view text, T& out) {
  const double value = std::strtod(std::string(text).c_str(), nullptr);
  if (std::abs(value) >= 1) return false;
  out = static_cast<T>(value);
  return true;
}

template <class T>
bool parse_number(std::string_view text, T& out) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  // from_chars knows no plus sign.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end != text.data() + text.size()) return false;
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range) return parse_tiny(text, out);
  }
  return error == std::errc();
}

template <class T>
class NumberColumn final : public CsvColumnValues {
 public:
  bool add(std::string_view text) override {
    T value{};
    if (!parse_number(text, value)) return false;
    values_.push_back(value);
    return true;
  }
  void put_back(const Element& value) override {
    const Tensor& one = value.tensor();
    if (one.numel() != 1 || one.scalar_type() != runtime::dtype_of<T>) StateReader::fail();
    values_.push_back(*one.const_data_ptr<T>());
  }
  void cut(std::size_t rows) override { values_.resize(rows); }
  Element take(bool batch) override {
    Shape shape;
    if (batch) shape.push_back(static_cast<int64_t>(values_.size()));
    Tensor out = empty(shape, runtime::dtype_of<T>);
    std::copy(values_.begin(), values_.end(), out.mutable_data_ptr<T>());
    values_.clear();  // Keeps its memory: the next batch is as large.
    return out;
  }

 private:
  std::vector<T> values_;
};

class StringColumn final : public CsvColumnValues {
 public:
  bool add(std::string_view text) override {
    values_.add(text);
    return true;
  }
  void put_back(const Element& value) override { values_.add(value.string()); }
  void cut(std::size_t rows) override { values_.cut_to(rows); }
  Element take(bool batch) override {
    PackedStrings full = std::exchange(values_, {});
    if (!batch) return std::string(full[0]);
    values_.reserve(full.size(), full.bytes());
    const auto count = static_cast<int64_t>(full.size());
    return Element::packed(std::move(full), {count});
  }

 private:
  PackedStrings values_;
};

std::unique_ptr<CsvColumnValues> make_column(CsvType type) {
  switch (type) {
    case CsvType::kString:
      return std::make_unique<StringColumn>();
    case CsvType::kFloat32:
      return std::make_unique<NumberColumn<float>>();
    case CsvType::kFloat64:
      return std::make_unique<NumberColumn<double>>();
    case CsvType::kInt32:
      return std::make_unique<NumberColumn<int32_t>>();
    default:
      return std::make_unique<NumberColumn<int64_t>>();
  }
}

}  // namespace

TensorSpec spec_of_csv(CsvType type) {
  switch (type) {
    case CsvType::kString:
      return TensorSpec::strings();
    case CsvType::kFloat32:
      return {{}, kFloat32};
    case CsvType::kFloat64:
      return {{}, kFloat64};
    case CsvType::kInt32:
      return {{}, kInt32};
    default:
      return {{}, kInt64};
  }
}

bool is_csv_field(CsvType type, std::string_view text) { return make_column(type)->add(text); }

CsvBatch::CsvBatch(std::shared_ptr<const CsvOptions> options) : options_(std::move(options)) {
  for (const CsvColumn& column : options_->columns) columns_.push_back(make_column(column.type));
}

void CsvBatch::put_back(const Element& row) {
  if (row.size() != columns_.size()) StateReader::fail();
  begin_row();
  for (std::size_t c = 0; c < columns_.size(); ++c) columns_[c]->put_back(row[c]);
  end_row();
}

void CsvBatch::begin_row() {
  if (open_) {
    for (const auto& column : columns_) column->cut(static_cast<std::size_t>(rows_));
  }
  open_ = true;
}

void CsvBatch::end_row() {
  ++rows_;
  open_ = false;
}

Element CsvBatch::take(bool batch) {
  if (open_) begin_row();
  open_ = false;
  rows_ = 0;
  if (options_->columns.front().name.empty()) {
    std::vector<Element> parts;
    parts.reserve(columns_.size());
    for (const auto& column : columns_) parts.push_back(column->take(batch));
    return Element::tuple(std::move(parts));
  }
  std::vector<std::pair<std::string, Element>> parts;
  parts.reserve(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    parts.emplace_back(options_->columns[c].name, columns_[c]->take(batch));
  }
  return Element::named(std::move(parts));
}

}  // namespace cohort::internal::data
