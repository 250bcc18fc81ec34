// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/slice_image.h"

#include <utility>

#include "cohort/update_rules/update.h"

namespace cohort::internal::variables {

// From the end on, where gradients are known first: what is left over travels last.
WorkerShares::WorkerShares(const UpdateLayout& layout, int workers, std::size_t bytes)
    : workers_(workers), borders_{layout.total()}, regions_of_(layout.variables().size()) {
  std::size_t open = 0;
  std::size_t begin = layout.total();
  std::size_t from_end = 0;
  for (std::size_t r = layout.runs().size(); r-- > 0;) {
    const UpdateRun& run = layout.runs()[r];
    for (std::size_t m = run.members.size(); m-- > 0;) {
      const std::size_t v = run.members[m];
      const std::size_t size = layout.padded_size(v) * run.element_size;
      if (open > 0 && open + size > bytes) {
        borders_.push_back(begin);
        open = 0;
        ++from_end;
      }
      open += size;
      begin = run.start + layout.offset_in_run(v);
      regions_of_[v] = from_end;
    }
  }
  borders_.push_back(0);
  std::reverse(borders_.begin(), borders_.end());
  for (std::size_t& region : regions_of_) region = from_end - region;
}

SliceImage::SliceImage(const UpdateLayout& layout, const WorkerShares& shares, int worker,
                       std::size_t halo)
    : layout_(&layout) {
  for (std::size_t region = 0; region < shares.regions(); ++region) {
    first_.push_back(pieces_.size());
    for (std::size_t r = 0; r < layout.runs().size(); ++r) {
      const UpdateRun& run = layout.runs()[r];
      Range range = shares.share(region, run, worker);
      if (range.empty()) continue;
      range.end = std::min(range.end + halo, run.size);
      pieces_.push_back({.run = r, .range = range, .at = bytes_});
      const std::size_t bytes = range.size() * run.element_size;
      bytes_ += (bytes + kBorder - 1) / kBorder * kBorder;
    }
  }
  first_.push_back(pieces_.size());
}

const SlicePiece* SliceImage::piece_of(std::size_t region, std::size_t run) const {
  for (const SlicePiece& piece : pieces_of(region)) {
    if (piece.run == run) return &piece;
  }
  return nullptr;
}

const SlicePiece& SliceImage::piece_at(std::size_t run, std::size_t element) const {
  const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), std::pair(run, element),
                                       [](const auto& place, const SlicePiece& piece) {
                                         return place < std::pair(piece.run, piece.range.begin);
                                       });
  return *(behind - 1);
}

std::vector<Range> SliceImage::cut(std::size_t region, std::size_t bucket,
                                   base::FunctionRef<bool(std::size_t variable)> travels) const {
  std::vector<Range> out;
  Range open;  // also over what pads it between two pieces
  const auto close = [&] {
    for (std::size_t begin = open.begin; begin < open.end; begin += bucket) {
      out.push_back({begin, std::min(begin + bucket, open.end)});
    }
    open = {};
  };
  for (const SlicePiece& piece : pieces_of(region)) {
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
    Range bytes,
    base::FunctionRef<void(std::size_t run, Range elements, std::size_t at)> visit) const {
  const auto ends_before = [&](const SlicePiece& piece, std::size_t byte) {
    return piece.at + piece.range.size() * layout_->runs()[piece.run].element_size <= byte;
  };
  const auto first = std::lower_bound(pieces_.begin(), pieces_.end(), bytes.begin, ends_before);
  for (auto each = first; each != pieces_.end() && each->at < bytes.end; ++each) {
    const SlicePiece& piece = *each;
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

}  // namespace cohort::internal::variables
