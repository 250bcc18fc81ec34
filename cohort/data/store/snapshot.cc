// SPDX-License-Identifier: Apache-2.0
//
// snapshot, save and load.
#include <filesystem>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/fingerprint.h"
#include "cohort/data/dataset.h"
#include "cohort/data/store/internal/element_folder.h"

namespace cohort::internal::data {
namespace {

void check_folder(const ElementFolder& folder) {
  constexpr int64_t kMostShards = 9999;
  COHORT_CHECK_ARG(!folder.path.empty(), folder.where, " expected the path of a folder, got none");
  COHORT_CHECK_ARG(folder.shards >= 1 && folder.shards <= kMostShards, folder.where,
                   " expected 1 to ", kMostShards, " shards, got ", folder.shards);
  COHORT_CHECK_ARG(
      folder.compression == Compression::kNone || folder.compression == Compression::kGzip,
      folder.where, " expected Compression::kNone or kGzip, got another one");
}

/// A folder for each pipeline that was snapshotted, named by its fingerprint.
class SnapshotStore final : public ElementStore {
 public:
  SnapshotStore(ElementFolder folder, ShardsReader reader)
      : folder_(std::move(folder)), reader_(std::move(reader)) {}
  StoredElements find() const override {
    return open_element_folder(folder_.where, folder_.path, folder_.pipeline, reader_);
  }
  std::unique_ptr<ElementSink> begin() const override { return begin_element_folder(folder_); }

 private:
  const ElementFolder folder_;
  const ShardsReader reader_;
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::snapshot(const std::string& path, SnapshotOptions options) const {
  const internal::data::ElementFolder any{
      "[dataset.snapshot]",   path, {}, {}, options.compression, options.shards,
      options.shard_function, true};
  internal::data::check_folder(any);
  std::string how = str_cat(" version ", options.version, ", ", options.shards, " shards",
                            options.shard_function ? " by a function" : " in turns",
                            options.compression == Compression::kGzip ? ", gzip" : "");
  const auto make_store =
      [any, how, reader = std::move(options.reader)](const internal::data::NodePtr& elements) {
        internal::data::ElementFolder folder = any;
        folder.pipeline = internal::data::pipeline_text(*elements) + how;
        folder.spec = elements->spec();
        folder.path += "/" + internal::data::short_hash(folder.pipeline);
        return std::make_unique<internal::data::SnapshotStore>(std::move(folder), reader);
      };
  return internal::data::with_store(node(), {.operation = "snapshot", .make_store = make_store});
}

void Dataset::save(const std::string& path, SaveOptions options) const {
  const internal::data::ElementFolder folder{
      "[dataset.save]",    path,           node()->signature(),   element_spec(),
      options.compression, options.shards, options.shard_function};
  internal::data::check_folder(folder);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::kAlreadyExists,
                str_cat("[dataset.save] expected a path that does not exist yet, got ", path,
                        "; remove it or name another"));
  }
  const auto sink = internal::data::begin_element_folder(folder);
  for (const Element& element : *this) sink->write(element.materialize());
  sink->commit();
}

Dataset Dataset::load(const std::string& path, std::function<Dataset(const Dataset&)> reader) {
  internal::data::StoredElements stored =
      internal::data::open_element_folder("[dataset.load]", path, "", reader);
  if (stored.dataset == nullptr) {
    throw Error(ErrorCode::kNotFound,
                str_cat("[dataset.load] expected a folder that save wrote, got ", path));
  }
  return Dataset(std::move(stored.dataset));
}

}  // namespace cohort::data
