// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/packing.h"

#include <algorithm>
#include <numeric>

#include "cohort/base/check.h"

namespace cohort {
namespace {

Pack whole_tensor(std::size_t tensor, int64_t size) { return {{tensor, 0, size}}; }

// Cuts [begin, end) of the row of all elements out of the tensors.
Pack cut(std::span<const int64_t> sizes, int64_t begin, int64_t end) {
  Pack pack;
  int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int64_t from = std::clamp<int64_t>(begin - offset, 0, sizes[i]);
    const int64_t to = std::clamp<int64_t>(end - offset, 0, sizes[i]);
    if (from < to) pack.push_back({i, from, to});
    offset += sizes[i];
  }
  return pack;
}

}  // namespace

Packer Packer::concat_and_split(std::span<const int64_t> sizes, int num_packs) {
  static constexpr const char* kOperation = "[packer.concat_and_split] ";
  COHORT_CHECK_ARG(num_packs >= 0, kOperation, "expected num_packs to be 0 or more, got ",
                   num_packs);
  for (const int64_t size : sizes) {
    COHORT_CHECK_ARG(size >= 0, kOperation, "expected sizes of 0 or more, got ", size);
  }
  Packer packer;
  if (num_packs == 0) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      packer.packs_.push_back(whole_tensor(i, sizes[i]));
    }
    return packer;
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t each = total / num_packs;
  for (int i = 0; i < num_packs; ++i) {
    packer.packs_.push_back(cut(sizes, i * each, i + 1 == num_packs ? total : (i + 1) * each));
  }
  return packer;
}

int64_t Packer::size(std::size_t pack) const {
  int64_t size = 0;
  for (const PackSegment& segment : packs_.at(pack)) size += segment.end - segment.begin;
  return size;
}

}  // namespace cohort
