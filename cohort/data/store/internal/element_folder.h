// SPDX-License-Identifier: Apache-2.0
//
// Folders of elements: what snapshot and save write.
//
//   elements                 an element file of one tensor: shards, elements, 1 if compressed
//   shard-00000-of-00004     element files; without a shard function, elements go to them in turns
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/data/core/options.h"
#include "cohort/data/store/internal/element_store.h"

namespace cohort::internal::data {

struct ElementFolder {
  std::string where;  ///< Begins the texts of errors.
  std::string path;
  std::string pipeline;  ///< What the elements come from.
  ElementSpec spec;
  Compression compression = Compression::kNone;
  int64_t shards = 1;
  std::function<int64_t(const Element&)> shard_function;  ///< Null: in turns.
  bool shared = false;  ///< Whoever writes it writes the same: the first one's will do.
};

/// Writes beside the path, and names the folder so when it is complete. Several may write at once:
/// the first to be complete wins.
std::unique_ptr<ElementSink> begin_element_folder(const ElementFolder& folder);

using ShardsReader = std::function<Dataset(const Dataset& shards)>;
/// What is at the path; null if nothing is. Without a reader, elements come as they were written
/// where there was no shard function, else one of each shard in turns.
/// Errors: InvalidArgument unless it came from `pipeline` (empty: from whatever), DataLoss.
StoredElements open_element_folder(const std::string& where, const std::string& path,
                                   const std::string& pipeline, const ShardsReader& reader);

}  // namespace cohort::internal::data
