// SPDX-License-Identifier: Apache-2.0
//
// Text lines, TFRecords and records of a fixed length.
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/data/core/internal/rows/packed_strings.h"
#include "cohort/data/formats/internal/file_nodes.h"
#include "cohort/data/formats/tf_record/internal/tf_record_format.h"

namespace cohort::internal {
namespace {

class StringBatch final : public RecordBatch {
 public:
  int64_t rows() const override { return static_cast<int64_t>(strings_.size()); }
  Element take() override {
    PackedStrings full = std::exchange(strings_, {});
    strings_.reserve(full.size(), full.bytes());  // The next batch will be like this one.
    const int64_t count = static_cast<int64_t>(full.size());
    return Element::packed(std::move(full), {count});
  }
  void put_back(const Element& row) override { strings_.add(row.string()); }
  PackedStrings& strings() { return strings_; }

 private:
  PackedStrings strings_;
};

/// Records that are strings.
class StringReader : public RecordReader {
 public:
  using RecordReader::RecordReader;

  bool next(Element& out) final {
    std::string record;
    if (!append(record)) return false;
    out = Element(std::move(record));
    return true;
  }
  bool next(RecordBatch& batch) final {
    PackedStrings& strings = static_cast<StringBatch&>(batch).strings();
    strings.cut();  // What an error left.
    if (!append(strings.open())) return false;
    strings.end();
    return true;
  }

 protected:
  /// Appends the next record; false at the end.
  virtual bool append(std::string& out) = 0;
};

class LineReader final : public StringReader {
 public:
  using StringReader::StringReader;

 protected:
  bool append(std::string& out) override {
    const std::size_t begin = out.size();
    bool any = false;
    while (true) {
      const std::string_view part = file().peek();
      if (part.empty()) break;
      any = true;
      const std::size_t end = part.find('\n');
      out += part.substr(0, end);
      file().consume(end == std::string_view::npos ? part.size() : end + 1);
      if (end != std::string_view::npos) break;
    }
    if (out.size() > begin && out.back() == '\r') out.pop_back();
    return any;
  }
};

class TfRecordReader final : public StringReader {
 public:
  using StringReader::StringReader;

  /// The length was right, only the data is not: the next record is where it should be.
  bool can_go_on() const override { return whole_; }

 protected:
  bool append(std::string& out) override {
    whole_ = false;
    const int64_t start = file().offset();
    const std::string_view header =
        file().peek_at_least(kTfRecordHeader).substr(0, kTfRecordHeader);
    if (header.empty()) return false;
    if (header.size() < kTfRecordHeader) {
      truncated(start, "its header", kTfRecordHeader, header.size());
    }
    const auto length = load_little_endian<uint64_t>(header.data());
    if (masked_crc32c(header.substr(0, sizeof(uint64_t))) !=
        load_little_endian<uint32_t>(header.data() + sizeof(uint64_t))) {
      file().fail(start,
                  "corrupted record: the checksum of its length is wrong (is this a TFRecord file, "
                  "and is it compressed?)");
    }
    file().consume(kTfRecordHeader);
    append_data(start, length, out);
    return true;
  }

 private:
  void append_data(int64_t start, uint64_t length, std::string& out) {
    const std::size_t begin = out.size();
    const uint64_t got = file().append(out, length);
    if (got < length) truncated(start, "data", length, got);
    const std::string_view footer =
        file().peek_at_least(kTfRecordFooter).substr(0, kTfRecordFooter);
    if (footer.size() < kTfRecordFooter) {
      truncated(start, "the checksum of its data", kTfRecordFooter, footer.size());
    }
    const auto stored = load_little_endian<uint32_t>(footer.data());
    file().consume(kTfRecordFooter);
    whole_ = true;
    if (masked_crc32c(std::string_view(out).substr(begin)) != stored) {
      file().fail(start, "corrupted record: the checksum of its data is wrong");
    }
  }

  [[noreturn]] void truncated(int64_t start, const char* what, uint64_t expected, uint64_t got) {
    file().fail(
        start, str_cat("truncated record: expected ", expected, " bytes of ", what, ", got ", got));
  }

  bool whole_ = false;  ///< The last record was read to its end.
};

class FixedLengthReader final : public StringReader {
 public:
  FixedLengthReader(FileReader file, int64_t record_bytes, const FixedLengthOptions& options)
      : StringReader(std::move(file)),
        record_(static_cast<std::size_t>(record_bytes)),
        footer_(static_cast<std::size_t>(options.footer_bytes)),
        header_left_(options.header_bytes) {}

  void save(StateWriter& out) override {
    out.put_int(header_left_);
    out.put_int(file().offset() - static_cast<int64_t>(ahead_.size()));
  }
  void restore(StateReader& in) override {
    header_left_ = in.get_int();
    RecordReader::restore(in);
  }

 protected:
  bool append(std::string& out) override {
    skip_header();
    const int64_t start = file().offset() - static_cast<int64_t>(ahead_.size());
    // The last bytes of a file are its footer, and only its end says which these are.
    if (ahead_.size() < record_ + footer_) {
      file().append(ahead_, record_ + footer_ - ahead_.size());
    }
    if (ahead_.size() == footer_) return false;
    if (ahead_.size() < record_ + footer_) {
      const std::size_t got = ahead_.size() - std::min(ahead_.size(), footer_);
      file().fail(start, str_cat("truncated record: expected ", record_, " bytes, got ", got,
                                 footer_ == 0 ? "" : " before the footer"));
    }
    out.append(ahead_, 0, record_);
    ahead_.erase(0, record_);
    return true;
  }

 private:
  void skip_header() {
    std::string header;
    const auto expected = static_cast<uint64_t>(std::exchange(header_left_, 0));
    const uint64_t got = file().append(header, expected);
    if (got < expected) {
      file().fail(0, str_cat("expected a header of ", expected, " bytes, got ", got));
    }
  }

  const std::size_t record_;
  const std::size_t footer_;
  int64_t header_left_;  ///< 0 once it is read.
  std::string ahead_;    ///< Read, not given out.
};

template <class Reader, class... Args>
NodePtr make_files_node(const std::string& operation, std::vector<std::string> files,
                        const FileOptions& options, Args... args) {
  COHORT_CHECK_ARG(options.buffer_bytes >= 1, "[dataset.", operation,
                   "] expected a buffer of at least 1 byte, got ", options.buffer_bytes);
  OpenRecords open = [operation, options, args...](const std::string& path) {
    return std::make_unique<Reader>(FileReader("[dataset." + operation + "]", path, options),
                                    args...);
  };
  return read_in_parallel(
      std::make_shared<FilesNode>(operation, TensorSpec::strings(), std::move(files),
                                  std::move(open), [] { return std::make_unique<StringBatch>(); }),
      options);
}

}  // namespace

NodePtr make_text_lines_node(std::vector<std::string> files, const FileOptions& options) {
  return make_files_node<LineReader>("text_lines", std::move(files), options);
}

std::unique_ptr<RecordReader> open_tf_records(std::string operation, const std::string& path,
                                              const FileOptions& options) {
  return std::make_unique<TfRecordReader>(FileReader(std::move(operation), path, options));
}

NodePtr make_tf_records_node(std::vector<std::string> files, const FileOptions& options) {
  return make_files_node<TfRecordReader>("tf_records", std::move(files), options);
}

NodePtr make_fixed_length_node(std::vector<std::string> files, int64_t record_bytes,
                               const FixedLengthOptions& options) {
  COHORT_CHECK_ARG(record_bytes >= 1,
                   "[dataset.fixed_length_records] expected records of at least 1 byte, got ",
                   record_bytes);
  COHORT_CHECK_ARG(options.header_bytes >= 0 && options.footer_bytes >= 0,
                   "[dataset.fixed_length_records] expected a header and a footer of at least 0 "
                   "bytes, got ",
                   options.header_bytes, " and ", options.footer_bytes);
  return make_files_node<FixedLengthReader>("fixed_length_records", std::move(files), options.file,
                                            record_bytes, options);
}

}  // namespace cohort::internal
