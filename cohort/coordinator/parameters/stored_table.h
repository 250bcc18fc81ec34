// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server keeps beside a variable, or a shard of it, whose rows belong to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/coordinator/parameters/message.h"
#include "cohort/variables/id_table.h"

namespace cohort::internal::coordinator {

void write_table_options(rpc::MessageWriter& out, const variables::IdTableOptions& options);
/// Errors: DataLoss.
variables::IdTableOptions read_table_options(rpc::MessageReader& in);

/// What a client reads of one, page by page.
struct TablePage {
  variables::IdTable::Counts counts = {};
  uint64_t version = 0;  ///< Of what the pages are parts of.
  uint64_t total = 0;    ///< Numbers of all pages.
  uint64_t of_rows = 0;  ///< The first ones of them: StoredTable::numbers; then IdMap::save().
  std::vector<int64_t> part = {};
};

/// Threads: thread-compatible.
struct StoredTable {
  explicit StoredTable(const variables::IdTableOptions& given) : options(given), map(given.map) {}

  const variables::IdTableOptions options;  ///< Of this shard.
  variables::IdMap map;
  /// Under which number each row is known to who reads or writes the table as a whole. Empty: it is
  /// its place in the table. Ids that come from a file have their numbers of there, wherever a hash
  /// puts them.
  std::vector<int64_t> numbers = {};
  std::vector<int64_t> arriving = {};  ///< Of a restore() whose pages are not all there.
  uint64_t version = 0;                ///< Changes of it.

  TablePage page(uint64_t first, uint64_t most);
  /// Page by page; the last one changes the table. Errors: DataLoss; InvalidArgument.
  void restore(uint64_t total, uint64_t of_rows, uint64_t first, const std::vector<int64_t>& part);

  void save(rpc::MessageWriter& out, rpc::Payload& to) const;
  /// Errors: DataLoss.
  static std::unique_ptr<StoredTable> load(rpc::MessageReader& in, PayloadReader& from);

 private:
  std::vector<int64_t> shown_ = {};  // of the version, for page()
  uint64_t shown_version_ = ~uint64_t{0};
};

}  // namespace cohort::internal::coordinator
