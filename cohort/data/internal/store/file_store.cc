// SPDX-License-Identifier: Apache-2.0
//
// The elements of cache(file): one file, beside it while it is written a .lockfile and a .partial.
#include <filesystem>

#include "cohort/base/check.h"
#include "cohort/data/internal/store/element_file.h"
#include "cohort/data/internal/store/element_store.h"
#include "cohort/data/internal/store/file_lock.h"

namespace cohort::internal {
namespace {

constexpr const char* kWhere = "[dataset.cache]";

class FileSink final : public ElementSink {
 public:
  FileSink(const std::string& path, const ElementFileHeader& header)
      : path_(path),
        partial_(path + ".partial"),
        lock_(kWhere, path + ".lockfile"),
        writer_(partial_, header) {}
  ~FileSink() override {
    std::error_code ignored;
    if (!committed_) std::filesystem::remove(partial_, ignored);
  }
  void write(const Element& element) override { writer_.write(element); }
  void commit() override {
    writer_.close();
    std::filesystem::rename(partial_, path_);
    committed_ = true;
  }

 private:
  const std::string path_;
  const std::string partial_;
  const FileLock lock_;
  ElementFileWriter writer_;
  bool committed_ = false;
};

class FileStore final : public ElementStore {
 public:
  FileStore(std::string path, std::string pipeline, ElementSpec spec)
      : path_(std::move(path)), pipeline_(std::move(pipeline)), spec_(std::move(spec)) {}

  StoredElements find() const override {
    if (!std::filesystem::exists(path_)) return {};
    const ElementFileHeader header = read_element_file_header(kWhere, path_);
    COHORT_CHECK_ARG(header.pipeline == pipeline_ && header.spec == spec_, kWhere,
                     " expected the elements of ", pipeline_, ", like ", spec_.to_string(), ", in ",
                     path_, ", got those of ", header.pipeline, ", like ", header.spec.to_string(),
                     "; remove the file or name another");
    return {make_element_file_node(kWhere, path_, spec_), header.id};
  }
  std::unique_ptr<ElementSink> begin() const override {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    return std::make_unique<FileSink>(path_,
                                      ElementFileHeader{new_element_file_id(), pipeline_, spec_});
  }

 private:
  const std::string path_;
  const std::string pipeline_;
  const ElementSpec spec_;
};

}  // namespace

std::unique_ptr<const ElementStore> make_file_store(std::string path, std::string pipeline,
                                                    ElementSpec spec) {
  return std::make_unique<const FileStore>(std::move(path), std::move(pipeline), std::move(spec));
}

}  // namespace cohort::internal
