// SPDX-License-Identifier: Apache-2.0
//
// Files one after the other, and the files that a pattern names.
#include "cohort/data/formats/internal/file_nodes.h"

#include <glob.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal::data {
namespace {

/// The records of files that are read one after the other.
class FileSequence {
 public:
  explicit FileSequence(std::shared_ptr<const FilesNode> node) : node_(std::move(node)) {}

  /// Into an element or a batch; false at the end.
  template <class Out>
  bool next(Out& out) {
    check_cancelled();
    while (file_ < files().size()) {
      try {
        if (reader_ == nullptr) reader_ = node_->open()(files()[file_]);
        if (reader_->next(out)) return true;
      } catch (...) {
        // Whoever goes on after an error gets what can still be read.
        if (reader_ == nullptr || !reader_->can_go_on()) end_file();
        throw;
      }
      end_file();
    }
    return false;
  }
  void save(StateWriter& out) const {
    out.put_int(static_cast<int64_t>(file_));
    out.put_int(reader_ != nullptr ? 1 : 0);
    if (reader_ != nullptr) reader_->save(out);
  }
  void restore(StateReader& in) {
    file_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(files().size())));
    if (!in.get_flag()) return;
    if (file_ == files().size()) StateReader::fail();
    reader_ = node_->open()(files()[file_]);
    reader_->restore(in);
  }

 private:
  void end_file() {
    reader_.reset();
    ++file_;
  }

  const std::vector<std::string>& files() const { return *node_->files(); }

  const std::shared_ptr<const FilesNode> node_;
  std::size_t file_ = 0;
  std::unique_ptr<RecordReader> reader_;  ///< Null before a file's first record.
};

class FilesStream final : public ElementStream {
 public:
  explicit FilesStream(std::shared_ptr<const FilesNode> node) : files_(std::move(node)) {}

  bool next(Element& out) override { return files_.next(out); }
  void save(StateWriter& out) override { files_.save(out); }
  void restore(StateReader& in) override { files_.restore(in); }

 private:
  FileSequence files_;
};

class FilesBatchStream final : public ElementStream {
 public:
  FilesBatchStream(std::shared_ptr<const FilesNode> node, std::unique_ptr<RecordBatch> batch,
                   int64_t size, bool drop_remainder)
      : files_(std::move(node)),
        batch_(std::move(batch)),
        size_(size),
        drop_remainder_(drop_remainder) {}

  bool next(Element& out) override {
    // What is collected stays when a reader throws: the caller may go on after an error.
    while (batch_->rows() < size_ && files_.next(*batch_)) {
    }
    if (batch_->rows() == 0 || (drop_remainder_ && batch_->rows() < size_)) return false;
    out = batch_->take();
    return true;
  }
  void save(StateWriter& out) override {
    std::vector<Element> rows;
    if (const int64_t count = batch_->rows(); count > 0) {
      const Element part = batch_->take();
      for (int64_t i = 0; i < count; ++i) rows.push_back(unstack_element(part, i));
    }
    for (const Element& row : rows) batch_->put_back(row);
    put_elements(out, rows);
    files_.save(out);
  }
  void restore(StateReader& in) override {
    for (const Element& row : get_elements(in)) batch_->put_back(row);
    files_.restore(in);
  }

 private:
  FileSequence files_;
  const std::unique_ptr<RecordBatch> batch_;
  const int64_t size_;
  const bool drop_remainder_;
};

}  // namespace

FilesNode::FilesNode(std::string operation, ElementSpec spec, std::vector<std::string> files,
                     OpenRecords open, MakeRecordBatch make_batch)
    : DatasetNode(std::move(operation), std::move(spec), {}),
      files_(std::move(files)),
      open_(std::move(open)),
      make_batch_(std::move(make_batch)) {}

NodePtr FilesNode::with_files(std::vector<std::string> files) const {
  return std::make_shared<FilesNode>(operation(), spec(), std::move(files), open_, make_batch_);
}

int64_t FilesNode::cardinality() const { return files_.empty() ? 0 : kUnknownCardinality; }

std::unique_ptr<ElementStream> FilesNode::make_stream() const {
  return std::make_unique<FilesStream>(
      std::static_pointer_cast<const FilesNode>(shared_from_this()));
}

std::unique_ptr<ElementStream> FilesNode::make_batch_stream(int64_t size,
                                                            bool drop_remainder) const {
  return std::make_unique<FilesBatchStream>(
      std::static_pointer_cast<const FilesNode>(shared_from_this()), make_batch_(), size,
      drop_remainder);
}

std::string FilesNode::arguments() const { return bracketed(files_); }

std::string FilesNode::signature() const {
  return str_cat(DatasetNode::signature(), "[", files_.size(), " files]");
}

Dataset read_in_parallel(std::shared_ptr<const FilesNode> node, const FileOptions& options) {
  // Not the number of cores: the order of the records must not depend on the machine.
  constexpr int kTurnsOfAutotune = 16;
  COHORT_CHECK_ARG(options.parallel_reads >= 1 || options.parallel_reads == kAutotune, node->tag(),
                   " expected at least 1 parallel read or kAutotune, got ", options.parallel_reads);
  const bool tuned = options.parallel_reads == kAutotune;
  const auto files = static_cast<int64_t>(node->files()->size());
  const int64_t turns = std::min<int64_t>(tuned ? kTurnsOfAutotune : options.parallel_reads, files);
  if (turns < 2) return Dataset(node);
  NodePtr names = make_rows_node(node->operation() + "_files", make_tensor_rows(*node->files()));
  const auto open = [node](const Element& name) {
    return Dataset(node->with_files({name.string()}));
  };
  return Dataset(std::move(names))
      .interleave(open, {.cycle_length = static_cast<int>(turns),
                         .parallel_calls = tuned ? kAutotune : static_cast<int>(turns),
                         .deterministic = options.deterministic,
                         .spec = node->spec()});
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::list_files(const std::string& pattern, ListFilesOptions options) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  COHORT_CHECK_ARG(code == 0 && !files.empty(), "[dataset.list_files] expected files that match ",
                   pattern, ", got none");
  const auto count = static_cast<int64_t>(files.size());
  const Dataset names(internal::data::make_rows_node(
      "list_files", internal::data::make_tensor_rows(std::move(files))));
  if (!options.shuffle) return names;
  return names.shuffle(
      count, {.seed = options.seed, .reshuffle_each_iteration = options.reshuffle_each_iteration});
}

}  // namespace cohort::data
