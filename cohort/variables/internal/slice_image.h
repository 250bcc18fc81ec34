// SPDX-License-Identifier: Apache-2.0
//
// Which part of an update each of several workers does, and in what order it travels: region by
// region the slices of its runs in a row, every one on a 64-byte border, so that any range of bytes
// on such borders is a bucket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/variables/internal/update_layout.h"

namespace cohort::internal::variables {

/// Who updates what. Variables that are neighbours in the arena are a region, and every worker has
/// a share of each: so a region's gradients can travel before another's are known.
/// Threads: immutable.
class WorkerShares {
 public:
  /// `bytes`: the most of a region, unless one variable alone is larger.
  WorkerShares(const UpdateLayout& layout, int workers, std::size_t bytes);

  /// In the order of the arena.
  std::size_t regions() const { return borders_.size() - 1; }
  std::size_t region_of(std::size_t variable) const { return regions_of_[variable]; }
  /// Elements of a run.
  Range share(std::size_t region, const UpdateRun& run, int worker) const {
    return UpdateLayout::share(run, {borders_[region], borders_[region + 1]}, worker, workers_);
  }

 private:
  int workers_;
  std::vector<std::size_t> borders_;  // elements of all runs
  std::vector<std::size_t> regions_of_;
};

/// A slice of one run.
struct SlicePiece {
  std::size_t run = 0;
  Range range = {};    ///< Elements of the run.
  std::size_t at = 0;  ///< Where it begins in the image, in bytes.
};

/// What one worker updates. Threads: immutable.
class SliceImage {
 public:
  static constexpr std::size_t kBorder = 64;

  /// `halo`: so many elements more behind each slice, within its run: for blocks that begin in it.
  /// With a halo there is one region.
  SliceImage(const UpdateLayout& layout, const WorkerShares& shares, int worker, std::size_t halo);

  std::size_t bytes() const { return bytes_; }
  /// The piece of a run in a region; null if the worker has none.
  const SlicePiece* piece_of(std::size_t region, std::size_t run) const;
  /// Where an element of a run stands, in bytes. It has to be in the image.
  std::size_t place_of(std::size_t run, std::size_t element) const {
    const SlicePiece& piece = piece_at(run, element);
    return piece.at + (element - piece.range.begin) * layout_->runs()[run].element_size;
  }
  /// The bytes of a region's variables that travel, in parts of at most `bucket` bytes.
  std::vector<Range> cut(std::size_t region, std::size_t bucket,
                         base::FunctionRef<bool(std::size_t variable)> travels) const;
  /// Calls visit(run, elements, at) for all that lies in a range of bytes on borders.
  void for_each(
      Range bytes,
      base::FunctionRef<void(std::size_t run, Range elements, std::size_t at)> visit) const;

 private:
  const SlicePiece& piece_at(std::size_t run, std::size_t element) const;
  std::span<const SlicePiece> pieces_of(std::size_t region) const {
    return std::span(pieces_).subspan(first_[region], first_[region + 1] - first_[region]);
  }

  const UpdateLayout* layout_;
  std::vector<SlicePiece> pieces_;  // ascending by run and element
  std::vector<std::size_t> first_;  // [region], in pieces_; then the end
  std::size_t bytes_ = 0;
};

/// The part of a range of bytes that one of `parts` takes, cut on borders.
Range share_of_bytes(Range bytes, int part, int parts);

/// Blocks of squares of gradients, each computed by the worker in whose slice it begins, with the
/// bits of one process that does them all.
class NormBlocks {
 public:
  struct Segment {
    std::size_t run = 0;
    std::size_t begin = 0;  ///< Its first element in the run.
    std::size_t size = 0;
    std::size_t first_block = 0;
    std::optional<std::size_t> variable = {};  ///< Unset: it is the whole run.
    std::size_t blocks() const { return update_rules::square_sum_blocks(size); }
  };
  enum class Of { kRuns, kVariables };
  NormBlocks(const UpdateLayout& layout, Of of, int workers);

  const std::vector<Segment>& segments() const { return segments_; }
  /// The blocks of one worker.
  Range blocks_of(int worker) const {
    const auto w = static_cast<std::size_t>(worker);
    return {borders_[w], borders_[w + 1]};
  }
  /// Of all blocks. Threads: each block is written by one replica, and read behind a meeting.
  std::vector<double> squares;

  /// The sum over a segment, in block order.
  double sum_of(const Segment& segment) const;

 private:
  std::vector<Segment> segments_;
  std::vector<std::size_t> borders_;  // [worker]: its first block; then the end
};

}  // namespace cohort::internal::variables
