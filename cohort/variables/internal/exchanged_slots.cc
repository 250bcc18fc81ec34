// SPDX-License-Identifier: Apache-2.0
//
// Slots of an exchanged update: each worker has those of its slices.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {
namespace {

struct Box {
  Shape offset;
  Shape extent;
};

// Elements [begin, end) of a shape as boxes from axis `axis` on, whose elements each stand in a
// row, too: a part of a first row, whole rows, a part of a last one. `box`: where axes before it
// are.
void add_boxes(const Shape& shape, std::size_t axis, Range part, Box box, std::vector<Box>& out) {
  if (part.empty()) return;
  if (axis == shape.size()) return out.push_back(std::move(box));
  std::size_t row = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) row *= static_cast<std::size_t>(shape[i]);
  const auto add_part = [&](std::size_t at, Range of_row) {
    Box inner = box;
    inner.offset.push_back(static_cast<int64_t>(at));
    inner.extent.push_back(1);
    add_boxes(shape, axis + 1, of_row, std::move(inner), out);
  };
  std::size_t first = part.begin / row;
  const std::size_t last = part.end / row;
  if (part.begin % row != 0) {
    add_part(first, {part.begin % row, std::min(part.end - first * row, row)});
    ++first;
  }
  if (first < last) {
    Box whole = box;
    whole.offset.push_back(static_cast<int64_t>(first));
    whole.extent.push_back(static_cast<int64_t>(last - first));
    for (std::size_t i = axis + 1; i < shape.size(); ++i) {
      whole.offset.push_back(0);
      whole.extent.push_back(shape[i]);
    }
    out.push_back(std::move(whole));
  }
  if (first <= last && part.end % row != 0) add_part(last, {0, part.end % row});
}

std::size_t first_element(const Shape& shape, const Shape& offset) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    at = at * static_cast<std::size_t>(shape[i]) + static_cast<std::size_t>(offset[i]);
  }
  return at;
}

}  // namespace

Range ExchangedUpdate::slot_part(std::size_t variable, int worker) const {
  const SlicePiece* const piece = kept_[static_cast<std::size_t>(worker)].piece_of(
      shares_.region_of(variable), layout_.run_index_of(variable));
  if (piece == nullptr) return {};
  const std::size_t begin = layout_.offset_in_run(variable);
  const auto size = static_cast<std::size_t>(layout_.variables()[variable].impl().numel());
  return piece->range.intersect({begin, begin + size});
}

std::vector<TrackedPiece> ExchangedUpdate::slot_pieces(std::size_t variable, int slot) const {
  const Variable& v = layout_.variables()[variable];
  const std::size_t run = layout_.run_index_of(variable);
  const std::size_t begin = layout_.offset_in_run(variable);
  std::vector<TrackedPiece> pieces;
  for (int w = 0; w < workers_; ++w) {
    const Range part = slot_part(variable, w);
    std::vector<Box> boxes;
    if (!part.empty()) add_boxes(v.shape(), 0, {part.begin - begin, part.end - begin}, {}, boxes);
    for (Box& box : boxes) {
      TrackedPiece& piece = pieces.emplace_back();
      piece.offset = std::move(box.offset);
      piece.extent = std::move(box.extent);
      if (w != worker_) continue;
      std::byte* const at =
          slot_place(slot, live_, run, begin + first_element(v.shape(), piece.offset));
      piece.read = [at, extent = piece.extent, dtype = v.dtype()] {
        return at::from_blob(at, extent, at::TensorOptions().dtype(dtype));
      };
    }
  }
  return pieces;
}

Tensor ExchangedUpdate::read_slot(std::size_t variable, int slot) {
  const std::size_t run = layout_.run_index_of(variable);
  const std::size_t width = layout_.runs()[run].element_size;
  const std::size_t begin = layout_.offset_in_run(variable);
  const Variable& v = layout_.variables()[variable];
  Tensor out = zeros(v.shape(), v.dtype());
  auto* const data = static_cast<std::byte*>(out.mutable_data_ptr());
  std::vector<collectives::Bytes> pieces;
  for (int w = 0; w < workers_; ++w) {
    const Range part = slot_part(variable, w);
    if (part.empty()) {
      pieces.emplace_back();
      continue;
    }
    pieces.emplace_back(data + (part.begin - begin) * width, part.size() * width);
    if (w != worker_) continue;
    std::memcpy(pieces.back().data(), slot_place(slot, live_, run, part.begin),
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
  const Range part = slot_part(variable, worker_);
  if (part.empty()) return;
  const auto* const from =
      static_cast<const std::byte*>(whole.const_data_ptr()) + (part.begin - begin) * width;
  // Both sets: the rows of a table are written in both.
  for (const int set : {0, 1}) {
    std::memcpy(slot_place(slot, set, run, part.begin), from, part.size() * width);
  }
}

}  // namespace cohort::internal::variables
