// SPDX-License-Identifier: Apache-2.0
//
// fixed_length_records.
#include <algorithm>

#include "cohort/data/formats/internal/string_records.h"

namespace cohort::internal::data {
namespace {

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

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::fixed_length_records(std::vector<std::string> files, int64_t record_bytes,
                                      FixedLengthOptions options) {
  COHORT_CHECK_ARG(record_bytes >= 1,
                   "[dataset.fixed_length_records] expected records of at least 1 byte, got ",
                   record_bytes);
  COHORT_CHECK_ARG(options.header_bytes >= 0 && options.footer_bytes >= 0,
                   "[dataset.fixed_length_records] expected a header and a footer of at least 0 "
                   "bytes, got ",
                   options.header_bytes, " and ", options.footer_bytes);
  return internal::data::read_strings<internal::data::FixedLengthReader>(
      "fixed_length_records", std::move(files), options.file, record_bytes, options);
}

}  // namespace cohort::data
