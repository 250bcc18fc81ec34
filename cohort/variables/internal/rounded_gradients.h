// SPDX-License-Identifier: Apache-2.0
//
// Gradients that travel as bfloat16: half of the bytes. Every worker's are rounded, those that stay
// on it, too: sums depend on nobody's slice, and are of float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/variables/internal/slice_image.h"

namespace cohort::internal::variables {

/// To nearest, ties to even; what is beyond bfloat16's largest number becomes infinite, and a NaN
/// stays one. `out` is as long.
void round_to_bfloat16(std::span<const float> in, std::span<uint16_t> out);
/// Exact.
void widen_bfloat16(std::span<const uint16_t> in, std::span<float> out);

/// What takes the place of images of float32 gradients on the way; a range of bytes is always one
/// of the image. Threads: on disjoint ranges.
class RoundedGradients {
 public:
  /// `sent`: what this worker sends each; its own is what each sends it.
  RoundedGradients(collectives::Communicator& communicator, const std::vector<SliceImage>& sent);

  /// `image`: of worker `worker`, from which the range is rounded.
  void round(int worker, const std::byte* image, Range bytes);
  collectives::ConstBytes to(int worker, Range bytes) const { return place(to_, worker, bytes); }
  /// Where a worker's are received.
  collectives::Bytes from(int worker, Range bytes) const { return place(from_, worker, bytes); }
  /// What has come, as float32, to an image's range.
  static void widen(collectives::ConstBytes rounded, std::byte* out);

 private:
  static collectives::Bytes place(const std::vector<std::byte*>& images, int worker, Range bytes) {
    return {images[static_cast<std::size_t>(worker)] + bytes.begin / 2, bytes.size() / 2};
  }

  std::shared_ptr<std::byte> send_;
  std::shared_ptr<std::byte> receive_;
  std::vector<std::byte*> to_;    // [worker]
  std::vector<std::byte*> from_;  // [worker]
};

}  // namespace cohort::internal::variables
