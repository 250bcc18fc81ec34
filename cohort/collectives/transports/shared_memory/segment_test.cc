// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/segment.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "cohort/base/error.h"
#include "cohort/testing/child.h"

namespace cohort::internal::collectives {
namespace {

// A system that has no page left, as strict overcommit or a limit of shared memory make it: nothing
// else tells before a page is written.
bool refuse_pages() {
  std::array<sock_filter, 4> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter = {.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(SharedSegments, PagesThatTheSystemHasNotGotAreAnError) {
  EXPECT_EQ(testing::status_of_child([] {
              if (!refuse_pages()) return 1;
              try {
                SharedSegment::create(1 << 20);
              } catch (const Error& e) {
                const std::string text = e.what();
                const bool named = text.find("1048576 bytes of shared memory") != text.npos;
                return e.code() == ErrorCode::kResourceExhausted && named ? 0 : 2;
              }
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace cohort::internal::collectives
