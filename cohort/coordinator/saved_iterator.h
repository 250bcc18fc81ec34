// SPDX-License-Identifier: Apache-2.0
//
// A worker's place in its data, kept on the parameter servers: what a function has read counts as
// what it changes in variables does, and a worker that is started again goes on there.
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

/// Made in the strategy's scope: a resource of a worker, or an object of one. Which worker runs a
/// function says whose data it reads, so each worker's rows are read in their order and once, as
/// far as functions of that worker get. Threads: one caller at a time.
class SavedIterator {
 public:
  /// The data has to be the same, in the same order, each time that it is made.
  /// Errors: as Variable, for a name that is none or another's.
  SavedIterator(data::Dataset data, const SavedIteratorOptions& options);

  /// The next element, and nullopt at the end, from where the saved position is. In a function that
  /// counts once what it reads is read when the function counts; if it throws, or does not count,
  /// the next function of this worker reads it again.
  /// Errors: as data::Iterator::next, behind that element; as data::Iterator::restore;
  ///         InvalidArgument for a position that takes more than `bytes`.
  /// Cost: a read and a write of `bytes` on a server, and Iterator::save.
  /// TF: none; functions of TensorFlow's lose a restarted worker's place.
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
