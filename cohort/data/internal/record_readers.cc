// SPDX-License-Identifier: Apache-2.0
//
// Text lines, TFRecords and records of a fixed length.
#include <array>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/data/internal/file_nodes.h"
#include "cohort/data/internal/tf_record_format.h"

namespace cohort::internal {
namespace {

class LineReader final : public RecordReader {
 public:
  using RecordReader::RecordReader;

  bool next(Element& out) override {
    std::string line;
    bool any = false;
    while (true) {
      const std::string_view part = file().peek();
      if (part.empty()) break;
      any = true;
      const std::size_t end = part.find('\n');
      line += part.substr(0, end);
      file().consume(end == std::string_view::npos ? part.size() : end + 1);
      if (end != std::string_view::npos) break;
    }
    if (!any) return false;
    if (line.ends_with('\r')) line.pop_back();
    out = Element(std::move(line));
    return true;
  }
};

class TfRecordReader final : public RecordReader {
 public:
  using RecordReader::RecordReader;

  bool next(Element& out) override {
    whole_ = false;
    const int64_t start = file().offset();
    std::array<char, kTfRecordHeader> header{};
    const std::size_t got = file().read(header.data(), header.size());
    if (got == 0) return false;
    if (got < header.size()) truncated(start, "its header", header.size(), got);
    const std::string_view length_bytes(header.data(), sizeof(uint64_t));
    const auto length = load_little_endian<uint64_t>(header.data());
    if (masked_crc32c(length_bytes) !=
        load_little_endian<uint32_t>(header.data() + sizeof(uint64_t))) {
      file().fail(start,
                  "corrupted record: the checksum of its length is wrong (is this a TFRecord file, "
                  "and is it compressed?)");
    }
    std::string data;
    read_data(start, length, data);
    out = Element(std::move(data));
    return true;
  }
  /// The length was right, only the data is not: the next record is where it should be.
  bool can_go_on() const override { return whole_; }

 private:
  void read_data(int64_t start, uint64_t length, std::string& data) {
    const uint64_t got = file().append(data, length);
    if (got < length) truncated(start, "data", length, got);
    std::array<char, kTfRecordFooter> footer{};
    const std::size_t footer_got = file().read(footer.data(), footer.size());
    if (footer_got < footer.size()) {
      truncated(start, "the checksum of its data", footer.size(), footer_got);
    }
    whole_ = true;
    if (masked_crc32c(data) != load_little_endian<uint32_t>(footer.data())) {
      file().fail(start, "corrupted record: the checksum of its data is wrong");
    }
  }

  [[noreturn]] void truncated(int64_t start, const char* what, uint64_t expected, uint64_t got) {
    file().fail(
        start, str_cat("truncated record: expected ", expected, " bytes of ", what, ", got ", got));
  }

  bool whole_ = false;  ///< The last record was read to its end.
};

class FixedLengthReader final : public RecordReader {
 public:
  FixedLengthReader(FileReader file, int64_t record_bytes, const FixedLengthOptions& options)
      : RecordReader(std::move(file)),
        record_(static_cast<std::size_t>(record_bytes)),
        footer_(static_cast<std::size_t>(options.footer_bytes)),
        header_left_(options.header_bytes) {}

  bool next(Element& out) override {
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
    out = Element(ahead_.substr(0, record_));
    ahead_.erase(0, record_);
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(header_left_);
    out.put_int(file().offset() - static_cast<int64_t>(ahead_.size()));
  }
  void restore(StateReader& in) override {
    header_left_ = in.get_int();
    RecordReader::restore(in);
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
  return read_in_parallel(std::make_shared<FilesNode>(operation, TensorSpec::strings(),
                                                      std::move(files), std::move(open)),
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
