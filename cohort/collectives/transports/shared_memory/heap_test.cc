// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace cohort::internal::collectives {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

// Of segments, in this process.
int mappings() {
  int count = 0;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:cohort") != std::string::npos) ++count;
  }
  return count;
}

TEST(SharedHeap, WhatItsOwnerHasFreedIsNotKeptByReaders) {
  const auto table = std::make_unique<SegmentTable>();
  SharedHeap heap(table.get());
  PeerHeap reader(table.get());
  const int before = mappings();
  for (int i = 0; i < 8; ++i) {
    // Two at once, so that they take turns in the table.
    const auto first = heap.allocate(kBytes);
    const auto second = heap.allocate(kBytes);
    for (const auto& memory : {first, second}) {
      memory.get()[7] = std::byte{9};
      const auto place = heap.find({memory.get(), kBytes});
      ASSERT_TRUE(place.has_value());
      EXPECT_EQ(reader.read(*place, kBytes)[7], std::byte{9});
    }
  }
  {
    const auto other = heap.allocate(kBytes);
    reader.read(*heap.find({other.get(), kBytes}), kBytes);
    EXPECT_EQ(mappings() - before, 2) << "of its owner and its reader";
  }
}

TEST(SharedHeap, ARegionGetsMemoryWhereItIsWritten) {
  constexpr std::size_t kReserved = std::size_t{1} << 36;
  const auto table = std::make_unique<SegmentTable>();
  PeerHeap reader(table.get());
  std::unique_ptr<runtime::Region> region;
  {
    SharedHeap heap(table.get());
    region = heap.reserve(kReserved);
    ASSERT_NE(region, nullptr);
    std::byte* const far = region->data() + kReserved / 2 + 100;
    const auto place = heap.find({far, kBytes});
    ASSERT_TRUE(place.has_value());
    std::memset(far, 7, kBytes);
    const auto seen = reader.read(*place, kBytes);
    EXPECT_EQ(seen.front(), std::byte{7});
    // Whoever is beside it keeps what shares its pages.
    region->clear(kReserved / 2 + 100, kBytes - 1);
    EXPECT_EQ(seen.front(), std::byte{0});
    EXPECT_EQ(seen[kBytes - 2], std::byte{0});
    EXPECT_EQ(seen.back(), std::byte{7});
    EXPECT_EQ(heap.find({region->data() + kReserved, 1}), std::nullopt);
  }
  EXPECT_EQ(region->data()[kReserved / 2 + 99 + kBytes], std::byte{7}) << "it outlives the heap";
}

}  // namespace
}  // namespace cohort::internal::collectives
