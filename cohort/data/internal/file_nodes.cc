// SPDX-License-Identifier: Apache-2.0
//
// Files one after the other, and the files that a pattern names.
#include "cohort/data/internal/file_nodes.h"

#include <glob.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/internal/nodes.h"

namespace cohort::internal {
namespace {

class FilesStream final : public ElementStream {
 public:
  explicit FilesStream(std::shared_ptr<const FilesNode> node) : node_(std::move(node)) {}

  bool next(Element& out) override {
    while (file_ < node_->files().size()) {
      try {
        if (reader_ == nullptr) reader_ = node_->open()(node_->files()[file_]);
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
  void save(StateWriter& out) override {
    out.put_int(static_cast<int64_t>(file_));
    out.put_int(reader_ != nullptr ? 1 : 0);
    if (reader_ != nullptr) reader_->save(out);
  }
  void restore(StateReader& in) override {
    file_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(node_->files().size())));
    if (!in.get_flag()) return;
    if (file_ == node_->files().size()) StateReader::fail();
    reader_ = node_->open()(node_->files()[file_]);
    reader_->restore(in);
  }

 private:
  void end_file() {
    reader_.reset();
    ++file_;
  }

  const std::shared_ptr<const FilesNode> node_;
  std::size_t file_ = 0;
  std::unique_ptr<RecordReader> reader_;  ///< Null before a file's first record.
};

}  // namespace

FilesNode::FilesNode(std::string operation, ElementSpec spec, std::vector<std::string> files,
                     OpenRecords open)
    : DatasetNode(std::move(operation), std::move(spec), {}),
      files_(std::move(files)),
      open_(std::move(open)) {}

std::shared_ptr<const FilesNode> FilesNode::with_files(std::vector<std::string> files) const {
  return std::make_shared<FilesNode>(operation(), spec(), std::move(files), open_);
}

int64_t FilesNode::cardinality() const { return files_.empty() ? 0 : kUnknownCardinality; }

std::unique_ptr<ElementStream> FilesNode::make_stream() const {
  return std::make_unique<FilesStream>(
      std::static_pointer_cast<const FilesNode>(shared_from_this()));
}

std::string FilesNode::signature() const {
  return str_cat(DatasetNode::signature(), "[", files_.size(), " files]");
}

NodePtr read_in_parallel(std::shared_ptr<const FilesNode> node, const FileOptions& options) {
  // Not the number of cores: the order of the records must not depend on the machine.
  constexpr int kTurnsOfAutotune = 16;
  COHORT_CHECK_ARG(options.parallel_reads >= 1 || options.parallel_reads == kAutotune, node->tag(),
                   " expected at least 1 parallel read or kAutotune, got ", options.parallel_reads);
  const bool tuned = options.parallel_reads == kAutotune;
  const auto files = static_cast<int64_t>(node->files().size());
  const int64_t turns = std::min<int64_t>(tuned ? kTurnsOfAutotune : options.parallel_reads, files);
  if (turns < 2) return node;
  NodePtr names = make_rows_node(node->operation() + "_files", make_tensor_rows(node->files()));
  DatasetFunction open = [node](const Element& name) { return node->with_files({name.string()}); };
  return make_interleave_node("interleave", std::move(names), std::move(open),
                              {.cycle_length = static_cast<int>(turns),
                               .parallel_calls = tuned ? kAutotune : static_cast<int>(turns),
                               .deterministic = options.deterministic,
                               .spec = node->spec()});
}

NodePtr make_list_files_node(const std::string& pattern, const ListFilesOptions& options) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  COHORT_CHECK_ARG(code == 0 && !files.empty(), "[dataset.list_files] expected files that match ",
                   pattern, ", got none");
  const auto count = static_cast<int64_t>(files.size());
  NodePtr node = make_rows_node("list_files", make_tensor_rows(std::move(files)));
  if (!options.shuffle) return node;
  return make_shuffle_node(
      node, count,
      {.seed = options.seed, .reshuffle_each_iteration = options.reshuffle_each_iteration});
}

}  // namespace cohort::internal
