// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/rounded_gradients.h"

#include <bit>

namespace cohort::internal::variables {
namespace {

constexpr std::size_t half_of(std::size_t bytes) {
  return (bytes / 2 + SliceImage::kBorder - 1) / SliceImage::kBorder * SliceImage::kBorder;
}

}  // namespace

void round_to_bfloat16(std::span<const float> in, std::span<uint16_t> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t nearest = (bits + 0x7FFFU + (bits >> 16 & 1)) >> 16;
    // Of a NaN what is cut off could be all that makes it one.
    const uint32_t quiet = bits >> 16 | 0x40U;
    out[i] = static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : nearest);
  }
}

void widen_bfloat16(std::span<const uint16_t> in, std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
  }
}

RoundedGradients::RoundedGradients(collectives::Communicator& communicator,
                                   const std::vector<SliceImage>& sent) {
  std::size_t to_all = 0;
  for (const SliceImage& image : sent) to_all += half_of(image.bytes());
  const std::size_t mine = half_of(sent[static_cast<std::size_t>(communicator.rank())].bytes());
  send_ = communicator.allocate(to_all);
  receive_ = communicator.allocate(mine * sent.size());
  std::byte* to = send_.get();
  for (std::size_t w = 0; w < sent.size(); ++w) {
    to_.push_back(to);
    from_.push_back(receive_.get() + w * mine);
    to += half_of(sent[w].bytes());
  }
}

void RoundedGradients::round(int worker, const std::byte* image, Range bytes) {
  const collectives::Bytes out = place(to_, worker, bytes);
  round_to_bfloat16({reinterpret_cast<const float*>(image + bytes.begin), bytes.size() / 4},
                    {reinterpret_cast<uint16_t*>(out.data()), out.size() / 2});
}

void RoundedGradients::widen(collectives::ConstBytes rounded, std::byte* out) {
  const std::size_t count = rounded.size() / 2;
  widen_bfloat16({reinterpret_cast<const uint16_t*>(rounded.data()), count},
                 {reinterpret_cast<float*>(out), count});
}

}  // namespace cohort::internal::variables
