// SPDX-License-Identifier: Apache-2.0
//
// How an exchanged update clips by norms: each worker squares the blocks that begin in its slice.
#include <algorithm>
#include <cmath>

#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

// The sums that one process would make: of runs where all gradients are at their places.
NormBlocks* ExchangedUpdate::norm_blocks() {
  return is_full() && !options_.clipnorm ? of_runs_.get() : of_variables_.get();
}

void ExchangedUpdate::square_own_blocks(const Step& step, NormBlocks& blocks) {
  const Range all = blocks.blocks_of(worker_);
  const auto r = static_cast<std::size_t>(step.replica);
  const auto replicas = static_cast<std::size_t>(layout_.replicas());
  const Range mine{all.begin + all.size() * r / replicas,
                   all.begin + all.size() * (r + 1) / replicas};
  for (const NormBlocks::Segment& segment : blocks.segments()) {
    if (segment.variable && rows_.takes(*segment.variable)) continue;
    const Range here =
        mine.intersect({segment.first_block, segment.first_block + segment.blocks()});
    for (std::size_t block = here.begin; block < here.end; ++block) {
      const std::size_t inside = (block - segment.first_block) * update_rules::kSquareSumBlock;
      const Sources from = sources(step, segment.run, segment.begin + inside,
                                   segment.variable ? &*segment.variable : nullptr);
      const std::size_t size = std::min(update_rules::kSquareSumBlock, segment.size - inside);
      blocks.squares[block] =
          from.empty() ? 0
                       : layout_.runs()[segment.run].sum_of_squares(from, step.replica, 0, size);
    }
  }
}

void ExchangedUpdate::share_norms(const Step& step) {
  NormBlocks& blocks = *norm_blocks();
  square_own_blocks(step, blocks);
  step.meet();
  if (step.leads()) {
    std::vector<collectives::Bytes> pieces;
    for (int w = 0; w < workers_; ++w) {
      const Range theirs = blocks.blocks_of(w);
      pieces.push_back(collectives::bytes_of(blocks.squares)
                           .subspan(theirs.begin * sizeof(double), theirs.size() * sizeof(double)));
    }
    communicator_->all_gather(pieces);
    set_scales();
  }
  step.meet();
}

void ExchangedUpdate::set_scales() {
  const NormBlocks& blocks = *norm_blocks();
  const auto squares_of = [&](const NormBlocks::Segment& segment) {
    const bool by_rows = segment.variable && rows_.takes(*segment.variable);
    return by_rows ? rows_.squares_of(*segment.variable) : blocks.sum_of(segment);
  };
  if (options_.clipnorm) {
    for (const NormBlocks::Segment& segment : blocks.segments()) {
      scales_[*segment.variable] =
          update_rules::norm_clip_scale(std::sqrt(squares_of(segment)), *options_.clipnorm);
    }
    return;
  }
  double squares = 0;
  for (const NormBlocks::Segment& segment : blocks.segments()) squares += squares_of(segment);
  scale_ = update_rules::global_norm_clip_scale(std::sqrt(squares), *options_.global_clipnorm);
}

}  // namespace cohort::internal::variables
