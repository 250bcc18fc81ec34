// SPDX-License-Identifier: Apache-2.0
//
// Writes TFRecord files, which Dataset::tf_records and TensorFlow read.
//
//   TfRecordWriter writer("train-00000-of-00010.tfrecord.gz");
//   for (const Example& e : examples) writer.write(e.serialize());
//   writer.close();
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/data/core/options.h"

namespace cohort::data {

struct TfRecordWriterOptions {
  Compression compression = Compression::kAuto;
  int level = 6;  ///< Of zlib and gzip, 0 to 9.
};

/// Movable. Errors: Error with the system's text if the file cannot be made or written.
/// Threads: one caller at a time. TF: tf.io.TFRecordWriter.
class TfRecordWriter {
 public:
  /// Replaces an existing file.
  explicit TfRecordWriter(std::string path, TfRecordWriterOptions options = {});
  TfRecordWriter(TfRecordWriter&&) noexcept;
  TfRecordWriter& operator=(TfRecordWriter&&) noexcept;
  /// Closes; an error is only logged.
  ~TfRecordWriter();

  /// Errors: FailedPrecondition after close.
  void write(std::string_view record);
  /// Writes all records so far to the file.
  void flush();
  void close();

 private:
  class File;

  std::unique_ptr<File> file_;  ///< Null after close.
};

}  // namespace cohort::data
