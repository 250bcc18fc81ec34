// SPDX-License-Identifier: Apache-2.0
//
// CSV files: records of fields, and fields as columns of a type.
#include <algorithm>
#include <charconv>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/data/internal/file_nodes.h"

namespace cohort::internal {
namespace {

TensorSpec spec_of(CsvType type) {
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

template <class T>
bool parse_number(std::string_view text, Element& out) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  // from_chars knows no plus sign.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  Tensor number = empty({}, dtype_of<T>);
  *number.mutable_data_ptr<T>() = value;
  out = std::move(number);
  return true;
}

/// False if the text is not of the type.
bool parse_field(CsvType type, const std::string& text, Element& out) {
  switch (type) {
    case CsvType::kString:
      out = Element(text);
      return true;
    case CsvType::kFloat32:
      return parse_number<float>(text, out);
    case CsvType::kFloat64:
      return parse_number<double>(text, out);
    case CsvType::kInt32:
      return parse_number<int32_t>(text, out);
    default:
      return parse_number<int64_t>(text, out);
  }
}

class CsvReader final : public RecordReader {
 public:
  CsvReader(FileReader file, std::shared_ptr<const CsvOptions> options)
      : RecordReader(std::move(file)), options_(std::move(options)) {}

  bool next(Element& out) override {
    whole_ = false;
    if (!begun_) begin();
    const int64_t start = file().offset();
    if (!read_record(start)) return false;
    whole_ = true;
    check_count(start);
    std::vector<Element> parts(options_->columns.size());
    for (std::size_t c = 0; c < parts.size(); ++c) read_column(start, c, parts[c]);
    out = assemble(std::move(parts));
    return true;
  }
  bool can_go_on() const override { return whole_; }
  void save(StateWriter& out) override {
    RecordReader::save(out);
    out.put_int(begun_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(places_.size()));
    for (std::size_t place : places_) out.put_int(static_cast<int64_t>(place));
    out.put_int(static_cast<int64_t>(width_));
  }
  void restore(StateReader& in) override {
    RecordReader::restore(in);
    begun_ = in.get_flag();
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - 1;
    places_.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (std::size_t& place : places_) place = static_cast<std::size_t>(in.get_count(kMost));
    width_ = static_cast<std::size_t>(in.get_count(kMost));
    const bool fits = places_.size() == (begun_ ? options_->columns.size() : 0);
    if (!fits || (width_ != 0 && width_ < fields_needed())) StateReader::fail();
  }

 private:
  /// Finds the places of the columns, in the header where there is one.
  void begin() {
    const bool header = options_->header && read_record(0);
    for (std::size_t c = 0; c < options_->columns.size(); ++c) {
      places_.push_back(options_->select_columns.empty()
                            ? c
                            : static_cast<std::size_t>(options_->select_columns[c]));
      const std::string& name = options_->columns[c].name;
      if (!header || name.empty() || !options_->select_columns.empty()) continue;
      const auto at = std::find(fields_.begin(), fields_.end(), name);
      if (at == fields_.end()) {
        file().fail(0, str_cat("expected a header with ", name, ", got ", bracketed(fields_)));
      }
      places_[c] = static_cast<std::size_t>(at - fields_.begin());
    }
    if (header) width_ = fields_.size();
    if (header && width_ < fields_needed()) {
      file().fail(0, str_cat("expected a header of at least ", fields_needed(),
                             " fields for select_columns, got ", bracketed(fields_)));
    }
    if (width_ == 0 && options_->select_columns.empty()) width_ = places_.size();
    begun_ = true;
  }

  /// Every record has as many fields as the header, or as columns are wanted.
  void check_count(int64_t start) {
    if (width_ != 0 ? fields_.size() == width_ : fields_.size() >= fields_needed()) return;
    file().fail(start,
                str_cat("expected ", width_ != 0 ? "" : "at least ",
                        width_ != 0 ? width_ : fields_needed(), " fields, got ", fields_.size()));
  }
  std::size_t fields_needed() const {
    std::size_t most = 0;
    for (std::size_t place : places_) most = std::max(most, place + 1);
    return most;
  }

  void read_column(int64_t start, std::size_t c, Element& out) {
    const CsvColumn& column = options_->columns[c];
    const std::string* text = &fields_[places_[c]];
    if (text->empty() || *text == options_->na_value) {
      if (column.default_value) {
        text = &*column.default_value;
      } else if (column.type != CsvType::kString || !text->empty()) {
        file().fail(start, str_cat("expected a value in field ", places_[c],
                                   ", because its column has no default, got none"));
      }
    }
    if (!parse_field(column.type, *text, out)) {
      file().fail(start, str_cat("expected ", spec_of(column.type).to_string(), " in field ",
                                 places_[c], ", got \"", text->substr(0, 80), "\""));
    }
  }

  Element assemble(std::vector<Element> parts) const {
    if (options_->columns.front().name.empty()) return Element::tuple(std::move(parts));
    std::vector<std::pair<std::string, Element>> named;
    for (std::size_t c = 0; c < parts.size(); ++c) {
      named.emplace_back(options_->columns[c].name, std::move(parts[c]));
    }
    return Element::named(std::move(named));
  }

  bool next_char(char& out) {
    const std::string_view ahead = file().peek();
    if (ahead.empty()) return false;
    out = ahead.front();
    file().consume(1);
    return true;
  }
  bool peeks(char c) {
    const std::string_view ahead = file().peek();
    return !ahead.empty() && ahead.front() == c;
  }

  /// The fields of the next record that is not an empty line; false at the end.
  bool read_record(int64_t start) {
    fields_.assign(1, "");
    char c = 0;
    bool any = false;
    while (next_char(c)) {
      if (c == '\r' && peeks('\n')) continue;
      if (c == '\n') {
        if (any) return true;
      } else if (c == options_->delimiter) {
        fields_.emplace_back();
        any = true;
      } else if (c == '"' && options_->quotes && fields_.back().empty()) {
        read_quoted(start);
        any = true;
      } else {
        fields_.back() += c;
        any = true;
      }
    }
    return any;
  }

  /// To the closing quote, after which the field must end.
  void read_quoted(int64_t start) {
    char c = 0;
    while (true) {
      if (!next_char(c)) file().fail(start, "expected the end of a quoted field, got the file's");
      if (c == '"' && !peeks('"')) break;
      if (c == '"') next_char(c);
      fields_.back() += c;
    }
    const std::string_view ahead = file().peek();
    if (!ahead.empty() && ahead[0] != options_->delimiter && ahead[0] != '\n' && ahead[0] != '\r') {
      skip_line();
      whole_ = begun_;
      file().fail(start, "expected the end of a field after its closing quote, got more");
    }
  }
  void skip_line() {
    char c = 0;
    while (next_char(c) && c != '\n') {
    }
  }

  const std::shared_ptr<const CsvOptions> options_;
  std::vector<std::string> fields_;
  std::vector<std::size_t> places_;  ///< Of the columns among the fields.
  std::size_t width_ = 0;            ///< Fields of a record; 0: it may have more than are wanted.
  bool begun_ = false;
  bool whole_ = false;  ///< The last record was read to its end.
};

ElementSpec csv_spec(const CsvOptions& options) {
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (const CsvColumn& column : options.columns) {
    parts.emplace_back(spec_of(column.type));
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
                   "[dataset.csv] expected a place for each of ", options.columns.size(),
                   " columns, got ", bracketed(places));
  for (int64_t place : places) {
    COHORT_CHECK_ARG(place >= 0, "[dataset.csv] expected places of at least 0, got ",
                     bracketed(places));
  }
  for (const CsvColumn& column : options.columns) {
    Element value;
    COHORT_CHECK_ARG(
        !column.default_value || parse_field(column.type, *column.default_value, value),
        "[dataset.csv] expected a default of ", spec_of(column.type).to_string(), ", got \"",
        *column.default_value, "\"");
  }
}

}  // namespace

NodePtr make_csv_node(std::vector<std::string> files, const CsvOptions& options) {
  check_options(options);
  auto shared = std::make_shared<const CsvOptions>(options);
  OpenRecords open = [shared](const std::string& path) {
    return std::make_unique<CsvReader>(FileReader("[dataset.csv]", path, shared->file), shared);
  };
  return read_in_parallel(
      std::make_shared<FilesNode>("csv", csv_spec(options), std::move(files), std::move(open)),
      options.file);
}

}  // namespace cohort::internal
