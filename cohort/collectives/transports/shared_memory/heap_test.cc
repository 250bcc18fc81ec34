// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/heap.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cohort::internal::collectives
