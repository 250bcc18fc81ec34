// SPDX-License-Identifier: Apache-2.0
//
// A worker's position in its data, kept on the parameter servers: what a function has read counts
// as its changes of variables do, and a worker that is restarted goes on from there.
//
//   std::shared_ptr<SavedIterator> make_rows() {                  // a registered function
//     return std::make_shared<SavedIterator>(Dataset::range(1000), SavedIteratorOptions{"rows"});
//   }
//   void add_row(SavedIterator& rows, const Variable& sum) {      // and one that is scheduled
//     if (const auto row = rows.next()) sum.assign_add(row->as<Tensor>().to(kFloat32));
//   }
//   // In the chief:
//   // const auto rows = coordinator.create_per_worker_resource(make_rows);
//   // coordinator.schedule_exactly_once(add_row, rows, sum);     // each row is added once
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cohort/data/dataset.h"
#include "cohort/variables/variable.h"

namespace cohort {

struct SavedIteratorOptions {
  std::string name = {};  ///< Of the variable, of which each worker has its own.
  int64_t bytes = 4096;   ///< What a position may take, and each next() sends.
};

/// Made in the strategy's scope: a resource of a worker, or a member of one. A function reads the
/// data of the worker that runs it, so each worker's rows are read once and in their order, as far
/// as the functions on that worker get. Threads: one caller at a time.
class SavedIterator {
 public:
  /// The data has to be the same, in the same order, each time that it is made.
  /// Errors: as Variable, for an empty name or one that another variable has.
  SavedIterator(data::Dataset data, const SavedIteratorOptions& options);

  /// The next element from the saved position on; nullopt at the end. In a function of
  /// schedule_exactly_once() the position moves when its changes are applied; if it throws, or is
  /// run again, the next function on this worker reads the same elements again.
  /// Errors: as data::Iterator::next, which skips that element; as data::Iterator::restore;
  ///         InvalidArgument for a position that takes more than `bytes`.
  /// Cost: a read and a write of `bytes` on a server, and Iterator::save.
  /// TF: none; there a restarted worker loses its position.
  std::optional<data::Element> next();

 private:
  void find_place();
  void keep_place();

  const data::Dataset data_;
  const Variable position_;
  data::Iterator rows_;
  std::optional<std::string> at_ = std::string();  // where rows_ is; empty: at the beginning
  std::pair<uint64_t, uint64_t> reader_{};         // the attempt that read last
};

}  // namespace cohort
