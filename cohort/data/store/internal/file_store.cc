// SPDX-License-Identifier: Apache-2.0
//
// The elements of cache(file): one file, beside it while it is written a .lockfile and a .partial.
#include <filesystem>
#include <mutex>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/fingerprint.h"
#include "cohort/data/store/internal/element_file.h"
#include "cohort/data/store/internal/element_store.h"
#include "cohort/data/store/internal/file_lock.h"

namespace cohort::internal::data {
namespace {

constexpr const char* kWhere = "[dataset.cache]";

class FileSink final : public ElementSink {
 public:
  FileSink(const std::string& path, const ElementFileHeader& header)
      : path_(path),
        partial_(path + ".partial"),
        lock_(kWhere, path + ".lockfile"),
        writer_(without_leftovers(partial_), header) {}
  ~FileSink() override {
    std::error_code ignored;
    if (!committed_) std::filesystem::remove(partial_, ignored);
  }
  void write(const Element& element) override { writer_.write(element); }
  void commit() override {
    writer_.close();
    rename_path(kWhere, partial_, path_);
    committed_ = true;
  }

 private:
  /// Of a process that was killed: who holds the lock is the only one to write. Of a link, the
  /// link.
  static const std::string& without_leftovers(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return path;
  }

  const std::string path_;
  const std::string partial_;
  const FileLock lock_;
  ElementFileWriter writer_;
  bool committed_ = false;
};

class FileStore final : public ElementStore {
 public:
  FileStore(std::string path, NodePtr input) : path_(std::move(path)), input_(std::move(input)) {}

  StoredElements find() const override {
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return {};
    const ElementFileHeader header = read_element_file_header(kWhere, path_);
    COHORT_CHECK_ARG(header.pipeline == pipeline() && header.spec == input_->spec(), kWhere,
                     " expected the elements of ", pipeline(), " in ", path_, ", got those of ",
                     header.pipeline, "; remove the file or name another");
    return {make_element_file_node(kWhere, path_, header.spec), header.id};
  }
  std::unique_ptr<ElementSink> begin() const override {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty()) create_folders(kWhere, folder);
    return std::make_unique<FileSink>(
        path_, ElementFileHeader{new_element_file_id(), pipeline(), input_->spec()});
  }

 private:
  /// Found out when it is needed: it takes a look at every row in memory.
  const std::string& pipeline() const {
    std::call_once(described_, [this] { pipeline_ = pipeline_text(*input_); });
    return pipeline_;
  }

  const std::string path_;
  const NodePtr input_;
  mutable std::once_flag described_;
  mutable std::string pipeline_;  ///< Guarded by described_.
};

}  // namespace

std::unique_ptr<const ElementStore> make_file_store(std::string path, NodePtr input) {
  return std::make_unique<const FileStore>(std::move(path), std::move(input));
}

}  // namespace cohort::internal::data
