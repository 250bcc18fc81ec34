// SPDX-License-Identifier: Apache-2.0
//
// Arenas that grow with what is placed in them, within the address space that the process may have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/variables/arena.h"

namespace cohort::internal {

/// The arenas of one dtype, as many as its variables need. Threads: one caller at a time.
class ArenaChain {
 public:
  ArenaChain(int replicas, DType dtype, ParameterPlacement placement)
      : replicas_(replicas), dtype_(dtype), placement_(placement) {}

  /// A place in the first arena that has one, else in a new arena.
  /// Errors: Error kResourceExhausted if there is no address space.
  std::shared_ptr<ArenaRange> place(int64_t numel);

 private:
  ArenaSize next_size(std::size_t least) const;

  const int replicas_;
  const DType dtype_;
  const ParameterPlacement placement_;
  std::vector<std::shared_ptr<Arena>> arenas_;
};

}  // namespace cohort::internal
