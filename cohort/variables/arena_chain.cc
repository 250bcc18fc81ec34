// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/arena_chain.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "cohort/base/check.h"

namespace cohort::internal {
namespace {

constexpr std::size_t kFirstRegion = std::size_t{256} << 20;
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// The number behind `name` in a file of "name: number kB" lines.
std::size_t read_kilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::size_t number = 0;
    if (word == name && file >> number) return number << 10;
  }
  return 0;
}

std::size_t minus(std::size_t most, std::size_t used) { return most > used ? most - used : 0; }

/// What ulimit -v and the system's strict accounting leave to this process.
std::size_t address_space_left() {
  std::size_t left = kUnlimited;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    left = minus(limit.rlim_cur, read_kilobytes("/proc/self/status", "VmSize:"));
  }
  constexpr int kStrict = 2;
  int overcommit = 0;
  if (std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit && overcommit == kStrict) {
    left = std::min(left, minus(read_kilobytes("/proc/meminfo", "CommitLimit:"),
                                read_kilobytes("/proc/meminfo", "Committed_AS:")));
  }
  return left;
}

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
  const auto arena = Arena::create(replicas_, dtype_, placement_, next_size(least));
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
  const std::size_t left = address_space_left();
  if (left != kUnlimited) {
    // A quarter for all of them: slots, threads and LibTorch need the rest.
    const auto regions = static_cast<std::size_t>(2 * replicas_);
    wanted = std::min(wanted, left / 4 / regions);
  }
  return {.wanted = std::max(wanted, least), .least = least};
}

}  // namespace cohort::internal
