// SPDX-License-Identifier: Apache-2.0
//
// Sources that read files one after the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/internal/file_reader.h"

namespace cohort::internal::data {

/// Records of files as rows of a batch, without an element for each.
class RecordBatch {
 public:
  virtual ~RecordBatch() = default;
  virtual int64_t rows() const = 0;
  /// What batch() makes of these records. There are none afterwards.
  virtual Element take() = 0;
  /// Adds a row of what take gave.
  virtual void put_back(const Element& row) = 0;
};
using MakeRecordBatch = std::function<std::unique_ptr<RecordBatch>()>;

/// The elements of one file.
class RecordReader {
 public:
  explicit RecordReader(FileReader file) : file_(std::move(file)) {}
  virtual ~RecordReader() = default;
  virtual bool next(Element& out) = 0;
  /// The same as a row of `batch`, which is of the reader's kind. An error adds none.
  virtual bool next(RecordBatch& batch) = 0;
  /// After an error: whether the next record can be found.
  virtual bool can_go_on() const { return false; }
  virtual void save(StateWriter& out) { out.put_int(file_.offset()); }
  virtual void restore(StateReader& in) { file_.start_at(in.get_int()); }

 protected:
  FileReader& file() { return file_; }

 private:
  FileReader file_;
};

/// What makes a reader of a file. `options` of the node are in it.
using OpenRecords = std::function<std::unique_ptr<RecordReader>(const std::string& path)>;

/// A node that reads files: shards of them are nodes of the same kind over some of the files.
class FilesNode final : public DatasetNode {
 public:
  FilesNode(std::string operation, ElementSpec spec, std::vector<std::string> files,
            OpenRecords open, MakeRecordBatch make_batch);
  const std::vector<std::string>* files() const override { return &files_; }
  NodePtr with_files(std::vector<std::string> files) const override;
  const OpenRecords& open() const { return open_; }

  int64_t cardinality() const override;
  std::unique_ptr<ElementStream> make_stream() const override;
  std::unique_ptr<ElementStream> make_batch_stream(int64_t size,
                                                   bool drop_remainder) const override;
  std::string signature() const override;
  std::string arguments() const override;

 private:
  const std::vector<std::string> files_;
  const OpenRecords open_;
  const MakeRecordBatch make_batch_;
};

/// The same files, several at once in turns if the options say so.
/// Errors: InvalidArgument for options that cannot be.
Dataset read_in_parallel(std::shared_ptr<const FilesNode> node, const FileOptions& options);

}  // namespace cohort::internal::data
