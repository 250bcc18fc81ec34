// SPDX-License-Identifier: Apache-2.0
//
// Tables whose rows belong to ids (id_map.h) where neither the ids nor the rows are in this
// process: what autograd/dynamic_table.h asks of a store that keeps them, such as parameter
// servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/variables/id_map.h"
#include "cohort/variables/variable.h"

namespace cohort::internal::variables {

/// The first axis of slices of such a table, whose indices are ids of any number: never a shape.
inline constexpr int64_t kRowsOfIds = std::numeric_limits<int64_t>::max();

struct IdTableOptions {
  IdMapOptions map = {};
  uint64_t seed = 0;  ///< With the id, of its first row: uniform in [minval, maxval).
  double minval = -0.05;
  double maxval = 0.05;
  bool operator==(const IdTableOptions&) const = default;
};

/// The rows that the ids begin with, one after the other, of so many numbers each: the same
/// wherever they are made. `dtype`: float32 or float64.
void fill_first_rows(const IdTableOptions& options, std::span<const int64_t> ids, DType dtype,
                     std::size_t width, std::byte* to);

/// Threads: thread-safe. Errors, of all: as the store's reads and writes.
class IdTable {
 public:
  struct Counts {
    int64_t size = 0;
    int64_t candidates = 0;
    int64_t evicted = 0;
    int64_t refused = 0;
  };
  struct Found {
    std::vector<char> has_row = {};  ///< Of each id.
    Tensor rows = {};                ///< [ids, ...]; zeros where there is none.
  };
  IdTable() = default;
  virtual ~IdTable() = default;
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  /// IdMap::see, of ids each once; begins_step: behind IdMap::begin_step. Returns how many ids were
  /// to have a row when none was free.
  virtual int64_t see(std::span<const int64_t> ids, std::span<const int64_t> counts,
                      bool begins_step) = 0;
  /// Changes nothing. Ids each once.
  virtual Found find(std::span<const int64_t> ids) = 0;
  /// Updates that this process has made of lists that have the table.
  virtual int64_t updates() const = 0;
  virtual Counts counts() = 0;
  /// Order, of these two: nobody trains meanwhile.
  virtual IdMapState state() = 0;
  virtual void restore(const IdMapState& state) = 0;
};

/// A store that keeps such tables.
class IdTableStore {
 public:
  virtual ~IdTableStore() = default;
  /// The table of these rows, which all processes that ask for it share.
  /// Errors: Unimplemented where it has none; FailedPrecondition for one of other options.
  virtual std::shared_ptr<IdTable> table_of(const Variable& rows, const IdTableOptions& options,
                                            const char* why) = 0;
};

}  // namespace cohort::internal::variables
