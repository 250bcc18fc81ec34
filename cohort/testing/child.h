// SPDX-License-Identifier: Apache-2.0
//
// What only another process can show: life after fork, and under limits of the system.
//
//   EXPECT_EQ(status_of_child([] { limit_address_space(64 << 20); return train() ? 0 : 1; }), 0);
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>

#include "cohort/base/sanitizers.h"

namespace cohort::testing {

/// Sanitizers need all address space, and ThreadSanitizer starts no threads after a fork.
inline constexpr bool kCanLimitChildren = COHORT_UNDER_SANITIZER == 0;

/// What body() returns in a forked child: its exit status. 100 if it throws, which it writes to
/// standard error; minus the number of the signal that killed it, SIGALRM after 60 s.
template <class Body>
int status_of_child(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    constexpr unsigned kDeadline = 60;
    alarm(kDeadline);
    int status = 100;
    try {
      status = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "[child] %s\n", e.what());
    }
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 101;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Address space that this process has, in bytes.
inline std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// From now on this process gets no more than so many bytes of address space beyond what it has.
inline void limit_address_space(std::size_t more) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = address_space() + more;
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace cohort::testing
