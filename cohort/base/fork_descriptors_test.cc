// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/fork_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "cohort/testing/child.h"

namespace cohort::internal::base {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(ForkDescriptors, AreClosedInChildrenAlone) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  close_in_children(ends[0]);
  close_in_children(ends[1]);
  EXPECT_TRUE(close_no_more_in_children(ends[1]));
  EXPECT_EQ(testing::status_of_child([&] {
              if (is_open(ends[0])) return 1;
              if (!is_open(ends[1])) return 2;
              // Its number may be another file's by now.
              return close_no_more_in_children(ends[0]) ? 3 : 0;
            }),
            0);
  EXPECT_TRUE(is_open(ends[0]));
  EXPECT_TRUE(close_no_more_in_children(ends[0]));
  for (const int fd : ends) ::close(fd);
}

}  // namespace
}  // namespace cohort::internal::base
