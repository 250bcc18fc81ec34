// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/slice_image.h"

#include "cohort/update_rules/update.h"

namespace cohort::internal {

SliceImage::SliceImage(const UpdateLayout& layout, int worker, int workers, std::size_t halo)
    : layout_(&layout), index_(layout.runs().size()) {
  for (std::size_t r = 0; r < layout.runs().size(); ++r) {
    const UpdateRun& run = layout.runs()[r];
    Range range = layout.share(run, worker, workers);
    if (range.empty()) continue;
    range.end = std::min(range.end + halo, run.size);
    index_[r] = pieces_.size();
    pieces_.push_back({.run = r, .range = range, .at = bytes_});
    const std::size_t bytes = range.size() * run.element_size;
    bytes_ += (bytes + kBorder - 1) / kBorder * kBorder;
  }
}

std::vector<Range> SliceImage::cut(std::size_t bucket,
                                   FunctionRef<bool(std::size_t variable)> travels) const {
  std::vector<Range> out;
  Range open;  // also over what pads it between two pieces
  const auto close = [&] {
    for (std::size_t begin = open.begin; begin < open.end; begin += bucket) {
      out.push_back({begin, std::min(begin + bucket, open.end)});
    }
    open = {};
  };
  for (const SlicePiece& piece : pieces_) {
    const UpdateRun& run = layout_->runs()[piece.run];
    for (const std::size_t v : run.members) {
      const Range part = piece.range.intersect(layout_->range_of(v));
      if (part.empty()) continue;
      if (!travels(v)) {
        close();
        continue;
      }
      const std::size_t begin = piece.at + (part.begin - piece.range.begin) * run.element_size;
      if (open.empty()) open.begin = begin;
      open.end = begin + part.size() * run.element_size;
    }
  }
  close();
  return out;
}

void SliceImage::for_each(
    Range bytes, FunctionRef<void(std::size_t run, Range elements, std::size_t at)> visit) const {
  for (const SlicePiece& piece : pieces_) {
    const std::size_t width = layout_->runs()[piece.run].element_size;
    const Range inside = bytes.intersect({piece.at, piece.at + piece.range.size() * width});
    if (inside.empty()) continue;
    const std::size_t begin = piece.range.begin + (inside.begin - piece.at) / width;
    visit(piece.run, {begin, begin + inside.size() / width}, inside.begin);
  }
}

Range share_of_bytes(Range bytes, int part, int parts) {
  const std::size_t borders = (bytes.size() + SliceImage::kBorder - 1) / SliceImage::kBorder;
  const auto at = [&](int p) {
    const std::size_t cut = borders * static_cast<std::size_t>(p) / static_cast<std::size_t>(parts);
    return std::min(bytes.begin + cut * SliceImage::kBorder, bytes.end);
  };
  return {at(part), at(part + 1)};
}

NormBlocks::NormBlocks(const UpdateLayout& layout, Of of, int workers) {
  std::size_t blocks = 0;
  const auto add = [&](Segment segment) {
    segment.first_block = blocks;
    blocks += segment.blocks();
    segments_.push_back(segment);
  };
  for (std::size_t r = 0; r < layout.runs().size(); ++r) {
    const UpdateRun& run = layout.runs()[r];
    if (of == Of::kRuns) {
      add({.run = r, .begin = 0, .size = run.size});
      continue;
    }
    for (const std::size_t v : run.members) {
      add({.run = r,
           .begin = layout.offset_in_run(v),
           .size = layout.padded_size(v),
           .variable = v});
    }
  }
  squares.resize(blocks);
  // Slices are in the order of runs and elements, and so are blocks.
  borders_.assign(static_cast<std::size_t>(workers) + 1, blocks);
  borders_[0] = 0;
  std::size_t block = 0;
  int worker = 0;
  for (const Segment& segment : segments_) {
    const UpdateRun& run = layout.runs()[segment.run];
    for (std::size_t i = 0; i < segment.blocks(); ++i, ++block) {
      const std::size_t begin = segment.begin + i * update_rules::kSquareSumBlock;
      while (begin >= layout.share(run, worker, workers).end ||
             layout.share(run, worker, workers).empty()) {
        borders_[static_cast<std::size_t>(++worker)] = block;
      }
    }
  }
}

double NormBlocks::sum_of(const Segment& segment) const {
  double sum = 0;
  for (std::size_t i = 0; i < segment.blocks(); ++i) sum += squares[segment.first_block + i];
  return sum;
}

}  // namespace cohort::internal
