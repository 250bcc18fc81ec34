// SPDX-License-Identifier: Apache-2.0
//
// Files of records that are strings: lines, TFRecords, records of a fixed length.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/packed_strings.h"
#include "cohort/data/formats/internal/file_nodes.h"

namespace cohort::internal::data {

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

/// Reads records that are strings.
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

/// The records of files that `Reader` reads: it is made of a FileReader and `args`.
/// Errors: InvalidArgument for options that cannot be.
template <class Reader, class... Args>
Dataset read_strings(const std::string& operation, std::vector<std::string> files,
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

}  // namespace cohort::internal::data
