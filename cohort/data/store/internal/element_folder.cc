// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/store/internal/element_folder.h"

#include <array>
#include <cstdio>
#include <filesystem>

#include "cohort/base/check.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/store/internal/element_file.h"

namespace cohort::internal::data {
namespace {

std::string shard_path(const std::string& folder, int64_t shard, int64_t shards) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/shard-%05lld-of-%05lld", static_cast<long long>(shard),
                static_cast<long long>(shards));
  return folder + name.data();
}

std::string contents_path(const std::string& folder) { return folder + "/elements"; }

// What is in the way would be found when everything is written.
void check_free(const ElementFolder& folder) {
  std::error_code ignored;
  const bool in_the_way = std::filesystem::exists(folder.path, ignored) &&
                          !std::filesystem::is_empty(folder.path, ignored) &&
                          !std::filesystem::exists(contents_path(folder.path), ignored);
  if (!in_the_way) return;
  throw Error(ErrorCode::kAlreadyExists,
              str_cat(folder.where, " expected whole elements or nothing in ", folder.path,
                      ", got a folder without the file \"elements\": it is damaged, or not "
                      "Cohort's; remove it"));
}

class FolderSink final : public ElementSink {
 public:
  explicit FolderSink(const ElementFolder& folder)
      : folder_(folder), header_{new_element_file_id(), folder.pipeline, folder.spec} {
    check_free(folder_);
    partial_ = str_cat(folder_.path, ".partial-", header_.id);
    create_folders(folder_.where, std::filesystem::path(partial_).parent_path());
    create_new_folder(folder_.where, partial_);
    try {
      open_shards();
    } catch (...) {
      remove();
      throw;
    }
  }
  ~FolderSink() override { remove(); }

  void write(const Element& element) override {
    const int64_t shard =
        folder_.shard_function ? folder_.shard_function(element) : elements_ % folder_.shards;
    COHORT_CHECK_ARG(shard >= 0 && shard < folder_.shards, folder_.where,
                     " expected a shard function that returns a number in [0, ", folder_.shards,
                     "), got ", shard, " for element ", elements_);
    shards_[static_cast<std::size_t>(shard)]->write(element);
    ++elements_;
  }
  void commit() override {
    for (const auto& shard : shards_) shard->close();
    ElementFileWriter contents(contents_path(partial_), header_);
    contents.write(from_vector<int64_t>(
        {folder_.shards, elements_, folder_.compression == Compression::kGzip ? 1 : 0}, {3}));
    contents.close();
    std::error_code ignored;
    try {
      rename_path(folder_.where, partial_, folder_.path);
    } catch (const Error&) {
      // Another pass over the same pipeline was faster: its elements serve as well.
      if (folder_.shared && std::filesystem::exists(contents_path(folder_.path), ignored)) return;
      throw;
    }
  }

 private:
  void open_shards() {
    for (int64_t i = 0; i < folder_.shards; ++i) {
      shards_.push_back(std::make_unique<ElementFileWriter>(shard_path(partial_, i, folder_.shards),
                                                            header_, folder_.compression));
    }
  }
  void remove() {
    shards_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(partial_, ignored);
  }

  const ElementFolder folder_;
  const ElementFileHeader header_;
  std::string partial_;
  std::vector<std::unique_ptr<ElementFileWriter>> shards_;
  int64_t elements_ = 0;
};

}  // namespace

std::unique_ptr<ElementSink> begin_element_folder(const ElementFolder& folder) {
  return std::make_unique<FolderSink>(folder);
}

StoredElements open_element_folder(const std::string& where, const std::string& path,
                                   const std::string& pipeline, const ShardsReader& reader) {
  const std::string contents = contents_path(path);
  std::error_code ignored;
  if (!std::filesystem::exists(contents, ignored)) return {};
  const ElementFileHeader header = read_element_file_header(where, contents);
  COHORT_CHECK_ARG(pipeline.empty() || header.pipeline == pipeline, where,
                   " expected the elements of ", pipeline, " in ", path, ", got those of ",
                   header.pipeline);
  Element numbers;
  make_element_file_node(where, contents, {})->make_stream()->next(numbers);
  const auto counts = to_vector<int64_t>(numbers.tensor());
  const int64_t shards = counts.at(0);
  const Compression compression = counts.at(2) == 1 ? Compression::kGzip : Compression::kNone;
  auto shard = [=, spec = header.spec](int64_t i) {
    return Dataset(make_element_file_node(where, shard_path(path, i, shards), spec, compression));
  };
  // What a snapshot of these elements is known by: which writing they are.
  const Dataset all(make_rows_node("shards", make_range_rows(0, shards, 1), header.id));
  const Dataset elements =
      reader
          ? reader(all.map(shard, {.spec = ElementSpec::dataset(header.spec)}))
          : all.interleave(shard, {.cycle_length = static_cast<int>(shards), .spec = header.spec});
  return {elements.assert_cardinality(counts.at(1)).node(), header.id};
}

}  // namespace cohort::internal::data
