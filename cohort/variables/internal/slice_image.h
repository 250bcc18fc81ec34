// SPDX-License-Identifier: Apache-2.0
//
// Which part of an update each of several workers does, and in what order it travels: the slices of
// all runs in a row, every one on a 64-byte border, so that any range of bytes on such borders is
// a bucket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/variables/internal/update_layout.h"

namespace cohort::internal {

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
  SliceImage(const UpdateLayout& layout, int worker, int workers, std::size_t halo);

  std::size_t bytes() const { return bytes_; }
  /// The piece of a run; null if the worker has none of it.
  const SlicePiece* piece_of(std::size_t run) const {
    return index_[run] ? &pieces_[*index_[run]] : nullptr;
  }
  /// Where an element of a run stands, in bytes. It has to be in the image.
  std::size_t place_of(std::size_t run, std::size_t element) const {
    const SlicePiece& piece = pieces_[*index_[run]];
    return piece.at + (element - piece.range.begin) * layout_->runs()[run].element_size;
  }
  /// The bytes of the variables that travel, in parts of at most `bucket` bytes.
  std::vector<Range> cut(std::size_t bucket, FunctionRef<bool(std::size_t variable)> travels) const;
  /// Calls visit(run, elements, at) for all that lies in a range of bytes on borders.
  void for_each(Range bytes,
                FunctionRef<void(std::size_t run, Range elements, std::size_t at)> visit) const;

 private:
  const UpdateLayout* layout_;
  std::vector<SlicePiece> pieces_;
  std::vector<std::optional<std::size_t>> index_;  // [run], in pieces_
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

}  // namespace cohort::internal
