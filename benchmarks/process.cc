// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/check.h"

extern char** environ;

namespace cohort::bench {
namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& extra) {
  std::vector<std::string> all = extra;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(extra.begin(), extra.end(), [&](const std::string& other) {
      return other.rfind(name, 0) == 0;
    });
    if (!replaced) all.push_back(text);
  }
  return all;
}

}  // namespace

ContenderProcess::ContenderProcess(const std::vector<std::string>& command,
                                   const std::vector<std::string>& environment,
                                   const std::string& log)
    : name_(command.front()), log_(log) {
  signal(SIGPIPE, SIG_IGN);  // a contender that died is found out when it is read from
  int to[2], from[2];
  COHORT_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, "no pipe");
  to_ = to[1];
  from_ = from[0];

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);

  std::vector<std::string> arguments = command, variables = merged_environment(environment);
  const int error = posix_spawnp(&pid_, arguments[0].c_str(), &files, &attributes,
                                 pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(to[0]);
  close(from[1]);
  if (error) {
    close(to_);
    close(from_);
    throw Unavailable(str_cat("cannot start ", name_), name_);
  }
}

ContenderProcess::~ContenderProcess() {
  send("quit");
  close(to_);
  close(from_);
  if (!exited_within(std::chrono::milliseconds(3000))) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  } else {
    kill(-pid_, SIGKILL);  // whatever it left behind in its group
  }
}

// A process that has exited makes its pidfd readable.
bool ContenderProcess::exited_within(std::chrono::milliseconds limit) {
  const int handle = syscall(SYS_pidfd_open, pid_, 0);
  if (handle < 0) return false;
  pollfd ended{handle, POLLIN, 0};
  const bool exited = poll(&ended, 1, limit.count()) > 0;
  close(handle);
  if (exited) waitpid(pid_, nullptr, 0);
  return exited;
}

void ContenderProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) < 0) return;  // receive() reports it
}

std::string ContenderProcess::receive(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd readable{from_, POLLIN, 0};
    if (left.count() <= 0 || poll(&readable, 1, left.count()) == 0) {
      throw DeadlineExceeded(str_cat("no answer within ", limit.count(), " s, see ", log_));
    }
    char chunk[512];
    const ssize_t n = read(from_, chunk, sizeof chunk);
    if (n <= 0) throw Unavailable(str_cat("it ended without an answer, see ", log_), name_);
    buffer_.append(chunk, n);
  }
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  const auto space = line.find(' ');
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (line.rfind("error", 0) == 0) throw Unavailable(rest, name_);
  return rest;
}

}  // namespace cohort::bench
