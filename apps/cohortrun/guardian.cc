// SPDX-License-Identifier: Apache-2.0
#include "guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <stdexcept>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using Clock = std::chrono::steady_clock;

// Said by one whose groups have all ended.
constexpr pid_t kOver = 0;
constexpr int kLooksEveryMs = 20;

// Their numbers may become others'.
void forget_ended(std::set<pid_t>* groups) {
  std::erase_if(*groups, [](pid_t group) { return ::kill(-group, 0) != 0 && errno == ESRCH; });
}

// By hand where the system cannot (kernels before 5.9, filters of system calls).
void close_from(int first) {
  if (::close_range(static_cast<unsigned>(first), UINT_MAX, 0) == 0) return;
  const long end = ::sysconf(_SC_OPEN_MAX);
  for (int fd = first; fd < end; ++fd) ::close(fd);
}

void end_all(const std::set<pid_t>& groups, int signal) {
  for (const pid_t group : groups) {
    ::kill(-group, signal);
    ::kill(-group, SIGCONT);  // one that is stopped hears nothing before it goes on
  }
}

// In the child.
[[noreturn]] void keep_guard(const std::array<int, 2>& ends, std::chrono::seconds grace) {
  ::close(ends[1]);  // else the pipe would have no end
  ::setpgid(0, 0);   // whoever ends cohortrun with its group
  ::prctl(PR_SET_NAME, "cohort_guard");
  // Nobody is to wait for the end of what this process would hold open.
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::dup2(ends[0], STDERR_FILENO + 1);
  close_from(STDERR_FILENO + 2);
  std::set<pid_t> groups;
  for (pid_t told = kOver;;) {
    const ssize_t got = ::read(STDERR_FILENO + 1, &told, sizeof told);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof told) break;
    if (told == kOver) ::_exit(0);
    told > 0 ? static_cast<void>(groups.insert(told)) : static_cast<void>(groups.erase(-told));
  }
  end_all(groups, SIGTERM);
  const Clock::time_point until = Clock::now() + grace;
  for (forget_ended(&groups); !groups.empty() && Clock::now() < until; forget_ended(&groups)) {
    ::poll(nullptr, 0, kLooksEveryMs);
  }
  end_all(groups, SIGKILL);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(std::chrono::seconds grace) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) == 0) pid_ = ::fork();
  if (pid_ == 0) keep_guard(ends, grace);
  if (pid_ < 0) {
    throw std::runtime_error(cohort::str_cat("expected a process, got: ", std::strerror(errno)));
  }
  ::close(ends[0]);
  told_ = ends[1];
}

Guardian::~Guardian() {
  tell(kOver);
  ::close(told_);
  ::waitpid(pid_, nullptr, 0);
}

// As much as a pipe takes at once.
void Guardian::tell(pid_t number) const {
  while (::write(told_, &number, sizeof number) < 0 && errno == EINTR) {
  }
}

}  // namespace cohortrun
