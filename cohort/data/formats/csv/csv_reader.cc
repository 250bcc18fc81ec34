// SPDX-License-Identifier: Apache-2.0
//
// CSV files: records of fields, and fields as columns of a type.
#include <algorithm>
#include <limits>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/data/formats/csv/internal/csv_columns.h"
#include "cohort/data/formats/internal/file_nodes.h"

namespace cohort::internal::data {
namespace {

class CsvReader final : public RecordReader {
 public:
  CsvReader(FileReader file, std::shared_ptr<const CsvOptions> options)
      : RecordReader(std::move(file)), options_(std::move(options)), row_(options_) {}

  bool next(Element& out) override {
    if (!next(row_)) return false;
    out = row_.take_row();
    return true;
  }
  bool next(RecordBatch& batch) override {
    auto& rows = static_cast<CsvBatch&>(batch);
    whole_ = false;
    if (!begun_) begin();
    if (!read_record()) return false;
    whole_ = true;
    const bool first = std::exchange(first_, false);
    check_count();
    rows.begin_row();
    for (std::size_t c = 0; c < places_.size(); ++c) read_column(c, first, rows.column(c));
    rows.end_row();
    return true;
  }
  bool can_go_on() const override { return whole_; }
  void save(StateWriter& out) override {
    RecordReader::save(out);
    out.put_int(begun_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(places_.size()));
    for (std::size_t place : places_) out.put_int(static_cast<int64_t>(place));
    out.put_int(static_cast<int64_t>(width_));
    out.put_int(lines_);
    out.put_int(first_ ? 1 : 0);
  }
  void restore(StateReader& in) override {
    RecordReader::restore(in);
    begun_ = in.get_flag();
    constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() - 1;
    places_.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (std::size_t& place : places_) place = static_cast<std::size_t>(in.get_count(kLargest));
    width_ = static_cast<std::size_t>(in.get_count(kLargest));
    lines_ = in.get_int();
    first_ = in.get_flag();
    const bool fits = places_.size() == (begun_ ? options_->columns.size() : 0);
    if (!fits || (width_ != 0 && width_ < fields_needed())) StateReader::fail();
  }

 private:
  /// Finds the places of the columns, in the header where there is one.
  void begin() {
    skip_byte_order_mark();
    const bool header = options_->header && read_record();
    for (std::size_t c = 0; c < options_->columns.size(); ++c) {
      places_.push_back(options_->select_columns.empty()
                            ? c
                            : static_cast<std::size_t>(options_->select_columns[c]));
      const std::string& name = options_->columns[c].name;
      if (!header || name.empty() || !options_->select_columns.empty()) continue;
      const auto at = std::find(fields_.begin(), fields_.end(), name);
      if (at == fields_.end()) {
        fail(str_cat("expected a header with ", name, ", got ", bracketed(fields_)));
      }
      if (std::find(at + 1, fields_.end(), name) != fields_.end()) {
        fail(str_cat("expected one column ", name, " in the header, got ", bracketed(fields_),
                     "; say by select_columns which is meant"));
      }
      places_[c] = static_cast<std::size_t>(at - fields_.begin());
    }
    if (header) width_ = fields_.size();
    if (header && width_ < fields_needed()) {
      fail(str_cat("expected a header of at least ", fields_needed(),
                   " fields for select_columns, got ", bracketed(fields_)));
    }
    if (width_ == 0 && options_->select_columns.empty()) width_ = places_.size();
    begun_ = true;
  }

  /// Spreadsheets begin UTF-8 with one.
  void skip_byte_order_mark() {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    if (file().peek_at_least(kMark.size()).starts_with(kMark)) file().consume(kMark.size());
  }

  /// Every record has as many fields as the header, or as columns are wanted.
  void check_count() {
    if (width_ != 0 ? fields_.size() == width_ : fields_.size() >= fields_needed()) return;
    fail(str_cat("expected ", width_ != 0 ? "" : "at least ",
                 width_ != 0 ? width_ : fields_needed(), " fields, got ", fields_.size()));
  }
  /// Throws DataLoss that names the file and the line in which the record begins.
  [[noreturn]] void fail(const std::string& text) {
    throw DataLoss(str_cat("[dataset.csv] ", file().path(), " line ", record_line_, ": ", text));
  }
  std::string column_text(std::size_t c) const {
    const std::string& name = options_->columns[c].name;
    return name.empty() ? str_cat("field ", places_[c]) : str_cat("column \"", name, '"');
  }
  std::size_t fields_needed() const {
    std::size_t most = 0;
    for (std::size_t place : places_) most = std::max(most, place + 1);
    return most;
  }

  void read_column(std::size_t c, bool first, CsvColumnValues& out) {
    const CsvColumn& column = options_->columns[c];
    std::string_view text = fields_[places_[c]];
    if (text.empty() || text == options_->na_value) {
      if (column.default_value) {
        text = *column.default_value;
      } else if (column.type != CsvType::kString || !text.empty()) {
        fail(str_cat("expected a value in ", column_text(c), ", which has no default, got none"));
      }
    }
    if (!out.add(text)) {
      const bool header = first && !options_->header;
      fail(str_cat("expected ", spec_of_csv(column.type).to_string(), " in ", column_text(c),
                   ", got \"", text.substr(0, 80), '"',
                   header ? "; if the first line holds names, set .header = true" : ""));
    }
  }

  bool next_char(char& out) {
    const std::string_view ahead = file().peek();
    if (ahead.empty()) return false;
    out = ahead.front();
    file().consume(1);
    if (out == '\n') ++lines_;
    return true;
  }
  bool peeks(char c) {
    const std::string_view ahead = file().peek();
    return !ahead.empty() && ahead.front() == c;
  }

  /// The fields of the next record that is not an empty line; false at the end.
  bool read_record() {
    while (true) {
      record_line_ = lines_ + 1;
      const std::string_view line = peek_line();
      const bool plain =
          line.ends_with('\n') && !(options_->quotes && line.find('"') != std::string_view::npos);
      if (!plain) return read_any_record();
      file().consume(line.size());  // It stays where it is until more is asked for.
      ++lines_;
      const std::string_view text = line.substr(0, line.size() - (line.ends_with("\r\n") ? 2 : 1));
      if (text.empty()) continue;
      split(text);
      return true;
    }
  }

  /// The next line with its end; without, if it is the last or longer than the buffer.
  std::string_view peek_line() {
    std::string_view ahead = file().peek();
    std::size_t searched = 0;
    while (true) {
      const std::size_t end = ahead.find('\n', searched);
      if (end != std::string_view::npos) return ahead.substr(0, end + 1);
      searched = ahead.size();
      ahead = file().peek_at_least(searched + 1);
      if (ahead.size() == searched) return ahead;
    }
  }

  void split(std::string_view text) {
    fields_.clear();
    while (true) {
      const std::size_t end = text.find(options_->delimiter);
      fields_.push_back(text.substr(0, end));
      if (end == std::string_view::npos) return;
      text.remove_prefix(end + 1);
    }
  }

  /// Character by character: fields with quotes, and lines that do not fit in the buffer.
  bool read_any_record() {
    parts_.assign(1, "");
    const bool any = read_parts();
    fields_.assign(parts_.begin(), parts_.end());
    return any;
  }

  bool read_parts() {
    char c = 0;
    bool any = false;
    while (next_char(c)) {
      if (c == '\r' && peeks('\n')) continue;
      if (c == '\n') {
        if (any) return true;
        record_line_ = lines_ + 1;
      } else if (c == options_->delimiter) {
        parts_.emplace_back();
        any = true;
      } else if (c == '"' && options_->quotes && parts_.back().empty()) {
        read_quoted();
        any = true;
      } else {
        parts_.back() += c;
        any = true;
      }
    }
    return any;
  }

  /// To the closing quote, after which the field must end.
  void read_quoted() {
    char c = 0;
    while (true) {
      if (!next_char(c)) fail("expected the end of a quoted field, got the file's");
      if (c == '"' && !peeks('"')) break;
      if (c == '"') next_char(c);
      parts_.back() += c;
    }
    const std::string_view ahead = file().peek();
    if (!ahead.empty() && ahead[0] != options_->delimiter && ahead[0] != '\n' && ahead[0] != '\r') {
      skip_line();
      whole_ = begun_;
      fail("expected the end of a field after its closing quote, got more");
    }
  }
  void skip_line() {
    char c = 0;
    while (next_char(c) && c != '\n') {
    }
  }

  const std::shared_ptr<const CsvOptions> options_;
  CsvBatch row_;                          ///< For records that are elements.
  std::vector<std::string_view> fields_;  ///< Of the record that was read last.
  std::vector<std::string> parts_;        ///< Where they are if they are not in the file's buffer.
  std::vector<std::size_t> places_;       ///< Of the columns among the fields.
  std::size_t width_ = 0;    ///< Fields of a record; 0: it may have more than are wanted.
  int64_t lines_ = 0;        ///< Line ends so far.
  int64_t record_line_ = 1;  ///< In which the record that was read last begins, from 1 on.
  bool begun_ = false;
  bool first_ = true;   ///< No record has been read but a header.
  bool whole_ = false;  ///< The last record was read to its end.
};

ElementSpec csv_spec(const CsvOptions& options) {
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (const CsvColumn& column : options.columns) {
    parts.emplace_back(spec_of_csv(column.type));
    if (!column.name.empty()) named.emplace_back(column.name, parts.back());
  }
  COHORT_CHECK_ARG(named.empty() || named.size() == parts.size(),
                   "[dataset.csv] expected names for all columns or for none, got ", named.size(),
                   " names for ", parts.size(), " columns");
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

void check_options(const CsvOptions& options) {
  COHORT_CHECK_ARG(!options.columns.empty(), "[dataset.csv] expected at least 1 column, got none");
  COHORT_CHECK_ARG(options.delimiter != '\n' && options.delimiter != '\r' &&
                       (options.delimiter != '"' || !options.quotes),
                   "[dataset.csv] expected a delimiter that is no line end and no quote");
  const auto& places = options.select_columns;
  COHORT_CHECK_ARG(places.empty() || places.size() == options.columns.size(),
                   "[dataset.csv] expected select_columns for each of ", options.columns.size(),
                   " columns, got ", bracketed(places));
  for (int64_t place : places) {
    COHORT_CHECK_ARG(place >= 0, "[dataset.csv] expected select_columns of at least 0, got ",
                     bracketed(places));
  }
  for (const CsvColumn& column : options.columns) {
    COHORT_CHECK_ARG(!column.default_value || is_csv_field(column.type, *column.default_value),
                     "[dataset.csv] expected a default of ", spec_of_csv(column.type).to_string(),
                     ", got \"", *column.default_value, "\"");
  }
}

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::csv(std::vector<std::string> files, CsvOptions options) {
  internal::data::check_options(options);
  auto shared = std::make_shared<const CsvOptions>(options);
  internal::data::OpenRecords open = [shared](const std::string& path) {
    return std::make_unique<internal::data::CsvReader>(
        internal::data::FileReader("[dataset.csv]", path, shared->file), shared);
  };
  return internal::data::read_in_parallel(
      std::make_shared<internal::data::FilesNode>(
          "csv", internal::data::csv_spec(options), std::move(files), std::move(open),
          [shared] { return std::make_unique<internal::data::CsvBatch>(shared); }),
      options.file);
}

}  // namespace cohort::data
