// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/arena_chain.h"

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::internal::variables {
namespace {

constexpr std::size_t kFirstRegion = std::size_t{256} << 20;

}  // namespace

std::shared_ptr<ArenaRange> ArenaChain::place(int64_t numel) {
  for (const auto& arena : arenas_) {
    if (const auto offset = arena->allocate(numel)) {
      return std::make_shared<ArenaRange>(arena, *offset, numel);
    }
  }
  std::erase_if(arenas_, [](const auto& arena) { return arena->empty(); });
  const std::size_t least =
      static_cast<std::size_t>(numel) * c10::elementSize(dtype_) + Arena::kAlignment;
  const auto arena = Arena::create(devices_, dtype_, next_size(least));
  arenas_.push_back(arena);
  const auto offset = arena->allocate(numel);
  COHORT_CHECK(offset.has_value(), "a new arena has no place for its first variable");
  return std::make_shared<ArenaRange>(arena, *offset, numel);
}

// Each arena as large as all before it, so that even a large model lies in a few runs.
ArenaSize ArenaChain::next_size(std::size_t least) const {
  std::size_t wanted = kFirstRegion;
  std::size_t so_far = 0;
  for (const auto& arena : arenas_) so_far += arena->region_bytes();
  wanted = std::max(wanted, so_far);
  const auto place_of = [](const Device& device) {
    return runtime::device_backend(device).place(device);
  };
  for (const Device& device : devices_.replicas) {
    // A quarter for all who share the place: slots, threads and LibTorch need the rest.
    const auto sharing = std::ranges::count(devices_.replicas, place_of(device), place_of);
    const auto regions = static_cast<std::size_t>(2 * sharing);
    wanted = std::min(wanted, runtime::device_backend(device).reservable(device) / 4 / regions);
  }
  return {.wanted = std::max(wanted, least), .least = least};
}

}  // namespace cohort::internal::variables
