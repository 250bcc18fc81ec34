// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/cpu.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::internal::base {
namespace {

TEST(Cpu, UsesAtMostWhatTheProcessorHas) {
  const Isa before = current_isa();
  EXPECT_LE(before, best_isa());
  for (const Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= best_isa()) {
      use_isa(isa);
      EXPECT_EQ(current_isa(), isa);
      EXPECT_EQ(of_current_isa(0, 1, 2), static_cast<int>(isa));
    } else {
      EXPECT_THROW(use_isa(isa), InvalidArgument);
    }
  }
  use_isa(before);
}

}  // namespace
}  // namespace cohort::internal::base
