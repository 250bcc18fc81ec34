// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/tf_record/internal/tf_record_reader.h"

#include "cohort/base/crc32c.h"
#include "cohort/data/formats/internal/little_endian.h"
#include "cohort/data/formats/internal/string_records.h"
#include "cohort/data/formats/tf_record/internal/tf_record_format.h"

namespace cohort::internal::data {
namespace {

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
    if (base::masked_crc32c(header.substr(0, sizeof(uint64_t))) !=
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
    if (base::masked_crc32c(std::string_view(out).substr(begin)) != stored) {
      file().fail(start, "corrupted record: the checksum of its data is wrong");
    }
  }

  [[noreturn]] void truncated(int64_t start, const char* what, uint64_t expected, uint64_t got) {
    file().fail(
        start, str_cat("truncated record: expected ", expected, " bytes of ", what, ", got ", got));
  }

  bool whole_ = false;  ///< The last record was read to its end.
};

}  // namespace

std::unique_ptr<RecordReader> open_tf_records(std::string operation, const std::string& path,
                                              const FileOptions& options) {
  return std::make_unique<TfRecordReader>(FileReader(std::move(operation), path, options));
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::tf_records(std::vector<std::string> files, FileOptions options) {
  return internal::data::read_strings<internal::data::TfRecordReader>("tf_records",
                                                                      std::move(files), options);
}

}  // namespace cohort::data
