// SPDX-License-Identifier: Apache-2.0
//
// A table whose ids and rows parameter servers keep, as a worker or the coordinator sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/remote_variables.h"
#include "cohort/variables/id_table.h"

namespace cohort::internal::coordinator {

/// Rows have numbers where the table is read or written as a whole, for files: those of a file that
/// was restored, or at first their places. A server that an id's hash names has its row, whatever
/// number that has; so a file restores into any number of servers.
/// Threads: thread-safe.
class RemoteTable final : public variables::IdTable {
 public:
  /// `rows` outlives it.
  RemoteTable(RemoteVariable& rows, std::shared_ptr<RemoteVariables> store,
              const variables::IdTableOptions& options);

  const variables::IdTableOptions& options() const { return options_; }
  int64_t see(std::span<const int64_t> ids, std::span<const int64_t> counts,
              bool begins_step) override;
  Found find(std::span<const int64_t> ids) override;
  int64_t updates() const override;
  Counts counts() override;
  variables::IdMapState state() override;
  /// Ids for which their server has not enough rows lose theirs, those seen the longest ago first,
  /// and a warning says how many.
  void restore(const variables::IdMapState& state) override;

  /// All rows, by their numbers, of what servers have as it lies there; and again.
  Tensor by_numbers(const Tensor& stored);
  Tensor as_stored(const Tensor& by_numbers);

 private:
  ParameterServers& servers() { return store_->servers(); }
  const ParameterHandle& handle() const;
  std::vector<int64_t> stored_numbers();

  RemoteVariable& rows_;
  const std::shared_ptr<RemoteVariables> store_;
  const variables::IdTableOptions options_;
};

/// As variables::sum_rows of slices whose indices are ids: in ascending order.
variables::RowSum sum_by_ids(const IndexedSlices& slices, DType dtype);

}  // namespace cohort::internal::coordinator
