// SPDX-License-Identifier: Apache-2.0
//
// Elements in files: what cache(file), snapshot and save write. A TFRecord file, so that every
// record has a checksum, whose records StateWriter wrote:
//
//   first          "cohort.elements.1", id, pipeline, spec
//   one each       1, element
//   last           0, number of elements; a file without it is not whole
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/formats/tf_record/tf_record.h"

namespace cohort::internal::data {

struct ElementFileHeader {
  std::string id;        ///< Of this writing; no other has it.
  std::string pipeline;  ///< What the elements come from.
  ElementSpec spec;
};

std::string new_element_file_id();

/// Threads: one caller at a time.
class ElementFileWriter {
 public:
  /// Errors: Error kAlreadyExists if anything has the path.
  ElementFileWriter(std::string path, const ElementFileHeader& header,
                    Compression compression = Compression::kNone);
  /// Errors: Unimplemented for elements that hold other datasets than windows.
  void write(const Element& element);
  /// Writes the end. Blocks: until the file is on the disk.
  void close();

 private:
  const std::string path_;
  TfRecordWriter writer_;
  int64_t elements_ = 0;
};

/// Errors: DataLoss, begun with `where`, if the file is damaged or another one, or no file at all.
ElementFileHeader read_element_file_header(const std::string& where, const std::string& path,
                                           Compression compression = Compression::kNone);

/// Reads the elements. Errors: next() throws DataLoss that names file and byte for damaged records,
/// then goes on as tf_records does.
NodePtr make_element_file_node(std::string where, std::string path, ElementSpec spec,
                               Compression compression = Compression::kNone);

/// Errors: Error with the system's text, begun with `where`.
void create_folders(const std::string& where, const std::string& path);
/// The same for one that must not be there.
void create_new_folder(const std::string& where, const std::string& path);
void rename_path(const std::string& where, const std::string& from, const std::string& to);

/// A new empty file: no link is followed, and nothing that is there is written to.
/// Errors: Error with the system's text, kAlreadyExists if anything has that name.
void create_file(const std::string& where, const std::string& path);

/// To the disk, whatever wrote it. Errors: Error with the system's text.
void sync_file(const std::string& where, const std::string& path);

}  // namespace cohort::internal::data
