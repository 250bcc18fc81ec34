// SPDX-License-Identifier: Apache-2.0
//
// A table whose rows belong to ids of any size, of which nobody knows how many there will be.
//
//   Variable rows(zeros({100000, 16}), {.name = "users"});  // as many as there may be at once
//   DynamicTable users(rows, {.admit_after = 2, .steps_to_live = 10000});
//   users.see(ids);                                         // in training: who gets a row
//   Tensor found = users.lookup(ids);                       // [batch, 16]
//
// An id has no row until it was seen `admit_after` times. Then it gets one, with first numbers that
// depend on seed and id alone: the same under every strategy, and when it comes again. The
// optimizer's slots begin anew with the row. Rows go to other ids between two updates only, and not
// those that were looked up since the last one, so that a gradient belongs to its id.
//
// For this there is to be one step under way: see, lookup, gradient, update. A gradient that is
// kept over other updates of the same optimizer, or of another thread's step, may meet another id.
// A step that fails leaves its counts, and rows it has given away are gone. On GPUs it has not been
// run. What counts as an update are those of optimizers by a rule (all but classes of OptimizerBase
// that write variables themselves, which are refused); without them no row goes to another id.
//
// On parameter servers the ids are beside their rows, each on the server that a hash of it names
// (splitmix64), and gradients name ids: one that comes when its id has lost the row is dropped, and
// none ever reaches another id, however many workers train. There an id's row may go from under a
// step that another worker's steps have overtaken; see docs/guide/dynamic_embeddings.md.
//
// Memory: rows and slots of `rows`, and for each id that has a row or is counted some 150 bytes
// (counted, not measured).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/variables/variable.h"
#include "cohort/variables/when_full.h"

namespace cohort {

class Trackable;

struct DynamicTableOptions {
  int64_t admit_after = 1;  ///< An id gets a row when it was seen so many times. TF: filter_freq.
  /// Ids without a row that are counted, at most: those seen last. 0: as many as rows.
  int64_t candidates = 0;
  WhenFull when_full = WhenFull::kLeastRecentlyUsed;
  /// Steps in which an id was not seen, after which it loses its row, and its count. A step begins
  /// with the first see() behind an update.
  std::optional<int64_t> steps_to_live = {};
  /// With the id, of its first row: uniform in [minval, maxval). Unset: a hash of the variable's
  /// name, so that two tables begin with other numbers.
  std::optional<uint64_t> seed = {};
  double minval = -0.05;
  double maxval = 0.05;
  /// What an id without a row is looked up as. Unset: the row that it would get.
  std::optional<double> default_value = {};

  /// Errors: InvalidArgument for numbers that make no sense.
  void check(const char* operation) const;
};

/// Handle to a table; a copy is the same table. Threads: see() as a replica's write, lookup() as
/// its read.
class DynamicTable {
 public:
  DynamicTable() = default;  ///< Empty handle.
  /// `rows`: whose rows are given away, all of them; what they hold is overwritten then.
  /// Shapes: rows [capacity, rest...], float32 or float64.
  /// Errors: InvalidArgument for another variable, and for options that make no sense;
  ///         FailedPrecondition for one that has a table already (on parameter servers, where all
  ///         processes make the same table, for one of other options);
  ///         Unimplemented for one of several workers that have copies, and with sync_replicas.
  DynamicTable(const Variable& rows, DynamicTableOptions options);

  /// Counts the ids, each time they stand there, and gives rows to those that were seen often
  /// enough. Where all rows are taken `when_full` says who goes, but nobody who was seen since the
  /// last update; with none left an id stays without a row, as if it had not been seen enough.
  /// Shapes: any, int32 or int64. Order: in a replica a merge point, in which those of all replicas
  /// count as one batch, in replica order. Errors: InvalidArgument for ids that are no integers;
  ///         Unimplemented in a function that schedule_exactly_once runs.
  /// Cost: on parameter servers a call to each that has a part, with each id once.
  void see(const Tensor& ids) const;
  /// Copies of the ids' rows. Those without one have no gradient.
  /// Shapes: ids [...], result [..., rest...]. Errors: likewise. Cost: the ids; those that are in a
  ///         GPU's memory are waited for.
  Tensor lookup(const Tensor& ids) const;
  /// The row that the id begins with. Shapes: [rest...].
  Tensor first_row(int64_t id) const;

  const Variable& rows() const;
  /// Ids that have a row, those seen the longest ago first. Errors: on parameter servers
  ///         FailedPrecondition where somebody trains meanwhile, here and in map().
  std::vector<int64_t> ids() const;
  int64_t size() const;
  int64_t capacity() const;
  /// How many ids are counted that have no row; have lost theirs so far; were to have one when none
  /// was free.
  int64_t candidates() const;
  int64_t evicted() const;
  int64_t refused() const;

  /// Which id has which row, with counts and steps, as one value [n] of int64, filled up with
  /// zeros: for files of models. Assigning it restores the table; its rows and slots are the
  /// variable's and the optimizer's. Its length is that of `capacity` and `candidates`. Errors,
  /// when assigned: DataLoss, InvalidArgument.
  Variable map() const;
  /// The same, for a Checkpoint, without what fills it up. Its rows and slots are saved with their
  /// variable.
  std::shared_ptr<Trackable> trackable() const;

 private:
  class Impl;
  Impl& use(const char* operation = __builtin_FUNCTION()) const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort
