// SPDX-License-Identifier: Apache-2.0
//
// Slots of an exchanged update: each worker has those of its slices.
#include <cstring>

#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

Tensor ExchangedUpdate::read_slot(std::size_t variable, int slot) {
  const std::size_t run = layout_.run_index_of(variable);
  const std::size_t width = layout_.runs()[run].element_size;
  const std::size_t begin = layout_.offset_in_run(variable);
  const Variable& v = layout_.variables()[variable];
  Tensor out = zeros(v.shape(), v.dtype());
  const Range all{begin, begin + static_cast<std::size_t>(out.numel())};
  auto* const data = static_cast<std::byte*>(out.mutable_data_ptr());
  std::vector<collectives::Bytes> pieces;
  for (int w = 0; w < workers_; ++w) {
    const SliceImage& image = kept_[static_cast<std::size_t>(w)];
    const SlicePiece* piece = image.piece_of(shares_.region_of(variable), run);
    const Range part = piece != nullptr ? piece->range.intersect(all) : Range{};
    if (part.empty()) {
      pieces.emplace_back();
      continue;
    }
    pieces.emplace_back(data + (part.begin - begin) * width, part.size() * width);
    if (w != worker_) continue;
    std::memcpy(pieces.back().data(), slot_data(slot, live_) + image.place_of(run, part.begin),
                pieces.back().size());
  }
  communicator_->take_turn("optimizer.slot",
                           [&] { communicator_->all_gather(pieces, {.tag = variable}); });
  return out;
}

void ExchangedUpdate::write_slot(std::size_t variable, int slot, const Tensor& value) {
  const std::size_t run = layout_.run_index_of(variable);
  const std::size_t width = layout_.runs()[run].element_size;
  const std::size_t begin = layout_.offset_in_run(variable);
  const Variable& v = layout_.variables()[variable];
  const Tensor whole = zeros(v.shape(), v.dtype()).copy_(value);
  const SlicePiece* piece =
      kept_[static_cast<std::size_t>(worker_)].piece_of(shares_.region_of(variable), run);
  if (piece == nullptr) return;
  const Range part =
      piece->range.intersect({begin, begin + static_cast<std::size_t>(whole.numel())});
  if (part.empty()) return;
  const auto* const from =
      static_cast<const std::byte*>(whole.const_data_ptr()) + (part.begin - begin) * width;
  // Both sets: the rows of a table are written in both.
  for (const int set : {0, 1}) {
    std::memcpy(slot_place(slot, set, run, part.begin), from, part.size() * width);
  }
}

}  // namespace cohort::internal::variables
