// SPDX-License-Identifier: Apache-2.0
//
// How a batch is cut into pieces for the replicas of all workers, and which pieces a worker takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cohort::internal::data {

/// What becomes of a batch with fewer rows than the others.
enum class SplitRule {
  /// It is cut like any other: pieces as equal as can be, the greater ones first.
  kEven,
  /// It fills the pieces of a full batch from the first on; what is left is empty. The rows of the
  /// next batch stay where they are.
  kRebatch,
};

enum class PieceChoice {
  /// All: the worker's batches are its own. It takes as many pieces a step as it has replicas, so
  /// that a batch lasts for as many steps as there are workers; worker w begins with the piece
  /// that is the first of its replicas' in the list for all of them.
  kAll,
  /// Every worker reads the same batches, and takes the pieces p with p % workers == worker.
  kEveryNth,
  /// Every worker reads the same batches; the pieces of one are neighbours.
  kConsecutive,
};

struct SplitPlan {
  int replicas = 1;   ///< Of each worker.
  int pipelines = 1;  ///< Workers.
  int index = 0;      ///< This one.
  SplitRule rule = SplitRule::kEven;
  PieceChoice choice = PieceChoice::kAll;
  /// One for each replica of all workers; empty: all alike. Not for kAll with several workers.
  std::vector<double> weights = {};

  int all_replicas() const { return replicas * pipelines; }
  /// True if a batch is one step, so that a position between steps is one between batches.
  bool batch_is_step() const { return pipelines == 1 || choice != PieceChoice::kAll; }
};

/// `rows` rows in so many parts that differ by 1 at most, the greater ones first.
std::vector<int64_t> even_sizes(int64_t rows, std::size_t parts);

/// Parts in proportion to the weights: each has its share rounded down, and the rows left go to
/// the greatest remainders, of equal ones to the first.
std::vector<int64_t> weighted_sizes(int64_t rows, std::span<const double> weights);

struct Piece {
  int64_t begin = 0;
  int64_t rows = 0;
  bool operator==(const Piece&) const = default;
};

/// This worker's pieces of a batch, `replicas` of them for each step. `full_rows` is the size of a
/// full batch, or kUnknownDim.
std::vector<Piece> pieces_of(int64_t rows, int64_t full_rows, const SplitPlan& plan);

}  // namespace cohort::internal::data
