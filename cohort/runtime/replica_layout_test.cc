// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_layout.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

TEST(ReplicaLayout, DefaultIsOneReplica) {
  const ReplicaLayout layout;
  EXPECT_EQ(layout, ReplicaLayout(0, 1, 1));
  EXPECT_EQ(layout.total(), 1);
  EXPECT_EQ(layout.first(), 0);
  EXPECT_EQ(layout.global_id(0), 0);
}

TEST(ReplicaLayout, OneWorkersLocalIdsAreGlobal) {
  const ReplicaLayout layout = ReplicaLayout::one_worker(4);
  EXPECT_EQ(layout, ReplicaLayout(0, 1, 4));
  EXPECT_EQ(layout.total(), 4);
  for (int local = 0; local < 4; ++local) EXPECT_EQ(layout.global_id(local), local);
}

TEST(ReplicaLayout, WorkersNumberTheirReplicasWithoutGaps) {
  int next = 0;
  for (int worker = 0; worker < 3; ++worker) {
    const ReplicaLayout layout(worker, 3, 2);
    EXPECT_EQ(layout.total(), 6);
    EXPECT_EQ(layout.first(), next);
    for (int local = 0; local < layout.local(); ++local) EXPECT_EQ(layout.global_id(local), next++);
    EXPECT_EQ(layout.global_id(-1), -1);  // no replica, on every worker
  }
  EXPECT_EQ(next, 6);
}

TEST(ReplicaLayout, ComparesAndPrints) {
  EXPECT_NE(ReplicaLayout(0, 2, 1), ReplicaLayout(1, 2, 1));
  EXPECT_NE(ReplicaLayout(0, 2, 1), ReplicaLayout(0, 1, 2));
  EXPECT_EQ(ReplicaLayout(1, 2, 1).to_string(), "worker 1 of 2, 1 local replica");
  std::ostringstream out;
  out << ReplicaLayout(0, 2, 4);
  EXPECT_EQ(out.str(), "worker 0 of 2, 4 local replicas");
}

TEST(ReplicaLayout, RefusesWhatIsNotOne) {
  EXPECT_THROW(ReplicaLayout(0, 0, 1), InvalidArgument);
  EXPECT_THROW(ReplicaLayout(0, 1, 0), InvalidArgument);
  EXPECT_THROW(ReplicaLayout(-1, 2, 1), InvalidArgument);
  EXPECT_THROW(ReplicaLayout(2, 2, 1), InvalidArgument);
  EXPECT_THROW(ReplicaLayout(0, 0x4000, 2), InvalidArgument);
  EXPECT_NO_THROW(ReplicaLayout(0, 0x7FFF, 1));
}

TEST(ReplicaLayout, SaysWhichOperationNeedsTheOtherWorkers) {
  EXPECT_NO_THROW(internal::runtime::check_one_worker("[reduce] ", ReplicaLayout::one_worker(2)));
  testing::expect_error<Unimplemented>({"[reduce] expected one worker, got worker 1 of 2"}, [] {
    internal::runtime::check_one_worker("[reduce] ", ReplicaLayout(1, 2, 1));
  });
}

}  // namespace
}  // namespace cohort
