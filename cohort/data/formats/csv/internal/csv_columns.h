// SPDX-License-Identifier: Apache-2.0
//
// The columns of CSV records as they are read.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cohort/data/formats/internal/file_nodes.h"

namespace cohort::internal::data {

/// The spec of one field.
TensorSpec spec_of_csv(CsvType type);
/// Whether a column of the type takes the text as a field.
bool is_csv_field(CsvType type, std::string_view text);

/// Fields of one column, one for each record.
class CsvColumnValues {
 public:
  virtual ~CsvColumnValues() = default;
  /// False if the text is not of the column's type.
  virtual bool add(std::string_view text) = 0;
  /// Adds row's value of a batch that take gave.
  virtual void put_back(const Element& value) = 0;
  /// Leaves the first `rows` fields.
  virtual void cut(std::size_t rows) = 0;
  /// The fields, [n], or the only one, []. There are none afterwards.
  virtual Element take(bool batch) = 0;
};

/// Records as rows. A record's fields are added in the order of the columns, then end_row counts
/// them; those of a record that was not ended are gone with the next begin_row.
class CsvBatch final : public RecordBatch {
 public:
  explicit CsvBatch(std::shared_ptr<const CsvOptions> options);

  int64_t rows() const override { return rows_; }
  Element take() override { return take(true); }
  void put_back(const Element& row) override;

  void begin_row();
  CsvColumnValues& column(std::size_t i) { return *columns_[i]; }
  void end_row();
  /// The only row, as an element.
  Element take_row() { return take(false); }

 private:
  Element take(bool batch);

  const std::shared_ptr<const CsvOptions> options_;
  std::vector<std::unique_ptr<CsvColumnValues>> columns_;
  int64_t rows_ = 0;
  bool open_ = false;
};

}  // namespace cohort::internal::data
