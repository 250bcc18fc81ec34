// SPDX-License-Identifier: Apache-2.0
//
// What workers exchange of gradients that are rows of tables: the rows that some replica has named,
// with their numbers, and never the table.
//
//   own rows summed | their numbers to all, their values to whose slices they lie in | the rule, on
//   copies of the own slice's rows | new rows to all | commit | they become live
//
// The sums are in rank order, as of everything in exchanged_update.h, and so are the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/collectives/communicator.h"
#include "cohort/variables/internal/post.h"
#include "cohort/variables/internal/slice_image.h"
#include "cohort/variables/internal/update_layout.h"
#include "cohort/variables/internal/worker_agreement.h"

namespace cohort::internal::variables {

/// Threads: replica 0 calls; behind a meeting all replicas call takes() and adopt().
class ExchangedRows {
 public:
  /// Where a slot of an element of the own slice stands; `set`: which of the two sets.
  using SlotPlace =
      base::FunctionRef<std::byte*(int slot, int set, std::size_t run, std::size_t element)>;

  /// `everywhere`: all workers need all values, for norms, and not those of their slices alone.
  ExchangedRows(const UpdateLayout& layout, const WorkerShares& shares,
                collectives::Communicator& communicator, bool everywhere)
      : layout_(layout), shares_(shares), communicator_(communicator), everywhere_(everywhere) {}

  /// This worker's rows: of every variable of which a replica has brought some.
  void begin(Posts posts);
  /// How many; see WorkerAgreement::write().
  std::map<std::size_t, int64_t> counts() const;
  /// The gradients of all variables that are updated by rows: those of which some worker has rows,
  /// and `usual` ones, whose gradients do not travel otherwise. A worker with a dense gradient of
  /// one has all its rows. Order: operations of the communicator.
  void exchange(Posts posts, const WorkerAgreement& agreement, const std::vector<bool>& usual);

  /// Whether the variable is updated by rows in this step.
  bool takes(std::size_t variable) const { return tables_.contains(variable); }
  bool empty() const { return tables_.empty(); }
  /// The sum over all workers. Needs `everywhere` to be of all rows.
  const RowSum& sum_of_workers(std::size_t variable) const { return tables_.at(variable).sum; }
  /// Of the summed gradient. Needs `everywhere`.
  double squares_of(std::size_t variable) const;
  /// The rule on copies of the own slice's rows, and of their slots.
  void update(const update_rules::Rule& rule, const UpdaterOptions& options, double weight_decay,
              base::FunctionRef<double(std::size_t variable)> scale, int live_set, SlotPlace slot);
  /// Order: operations of the communicator.
  void gather();
  /// The new rows become a replica's own. Nothing here can fail.
  void adopt(int replica) const;
  /// The same of the slots, in both sets.
  void adopt_slots(SlotPlace slot) const;

 private:
  struct Table {
    std::vector<std::vector<int64_t>> ids;  // [worker], ascending
    std::vector<int64_t> rows;              // of all of them, each once
    RowSum sum;                             // of all workers, of the rows that this one needs
    Tensor fresh;                           // the new values of `rows`, one behind the other
    std::vector<Tensor> slots;              // of the own ones among them
  };
  /// Rows [first, last) of a table.
  struct RowRange {
    int64_t first = 0;
    int64_t last = 0;
  };
  /// Elements of the table: what a worker updates.
  Range slice_of(std::size_t variable, int worker) const;
  RowRange needed_by(std::size_t variable, int worker) const;
  /// Where an element of the table stands, or would, among the elements of `rows`.
  std::size_t place_among(const std::vector<int64_t>& rows, std::size_t variable,
                          std::size_t element) const;
  RowSum all_rows(Posts posts, std::size_t variable) const;
  RowSum own_rows(Posts posts, std::size_t variable) const;
  void exchange_ids(const WorkerAgreement& agreement);
  void exchange_values(const WorkerAgreement& agreement);
  /// Calls visit(elements of the table, place among `rows`) for each row's part of a range.
  void for_each_row(const Table& table, std::size_t variable, Range elements,
                    base::FunctionRef<void(Range elements, std::size_t place)> visit) const;

  const UpdateLayout& layout_;
  const WorkerShares& shares_;
  collectives::Communicator& communicator_;
  const bool everywhere_;
  std::map<std::size_t, RowSum> own_;    // [variable]
  std::map<std::size_t, Table> tables_;  // [variable]
};

}  // namespace cohort::internal::variables
