// SPDX-License-Identifier: Apache-2.0
//
// Arenas that grow with what is placed in them, within the address space that their devices have
// left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/variables/arena.h"

namespace cohort::internal::variables {

/// The arenas of one dtype, as many as its variables need. Threads: one caller at a time.
class ArenaChain {
 public:
  ArenaChain(ArenaDevices devices, DType dtype) : devices_(std::move(devices)), dtype_(dtype) {}

  /// A place in the first arena that has one, else in a new arena.
  /// Errors: Error kResourceExhausted if there is no address space.
  std::shared_ptr<ArenaRange> place(int64_t numel);

 private:
  ArenaSize next_size(std::size_t least) const;

  const ArenaDevices devices_;
  const DType dtype_;
  std::vector<std::shared_ptr<Arena>> arenas_;
};

}  // namespace cohort::internal::variables
