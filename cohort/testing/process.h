// SPDX-License-Identifier: Apache-2.0
//
// Other programs that a test starts, watches, stops and kills:
//
//   Process worker({PROGRAM, "--steps", "9"}, {"COHORT_MIN_LOG_LEVEL=1"});
//   ASSERT_TRUE(worker.wait_for("step 3"));
//   worker.signal(SIGSTOP);
//   EXPECT_EQ(worker.wait(), 137) << worker.text();
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"

namespace cohort::testing {

/// One program in a process group of its own, which ends with this object. What it writes, to
/// either output, is collected.
class Process {
 public:
  /// The first word is a path, or a name that PATH knows; `environment` are "NAME=value" added to
  /// this process's.
  explicit Process(std::vector<std::string> command, std::vector<std::string> environment = {}) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) become(command, environment, ends[1]);
    ::close(ends[1]);
    if (pid_ > 0) ::setpgid(pid_, pid_);  // both do: whoever comes first
    reader_ = std::thread([this, from = ends[0]] { read_all(from); });
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) ::kill(-pid_, SIGKILL);
    wait();
    if (reader_.joinable()) reader_.join();
  }

  pid_t pid() const { return pid_; }
  /// To the process and all that it has started.
  void signal(int number) const {
    if (pid_ > 0) ::kill(-pid_, number);
  }

  /// What it has written so far.
  std::string text() const {
    const internal::base::MutexLock lock(mutex_);
    return text_;
  }
  /// Whether it has written `what`; waits for it until the process's outputs are closed, `limit` at
  /// the most.
  bool wait_for(const std::string& what, std::chrono::milliseconds limit = kLimit) const {
    const internal::base::MutexLock lock(mutex_);
    changed_.wait_for(mutex_, limit, [&]() COHORT_REQUIRES(mutex_) {
      return closed_ || text_.find(what) != std::string::npos;
    });
    return text_.find(what) != std::string::npos;
  }
  /// Its exit code, 128 and the signal's number if one ended it, as shells say it. -1 if it has
  /// not ended within `limit`: it is killed then.
  int wait(std::chrono::seconds limit = kLimit) {
    if (pid_ <= 0) return code_;
    bool in_time = false;
    {
      const internal::base::MutexLock lock(mutex_);
      in_time = changed_.wait_for(mutex_, limit, [&]() COHORT_REQUIRES(mutex_) { return closed_; });
    }
    if (!in_time) ::kill(-pid_, SIGKILL);
    int status = 0;
    const pid_t ended = ::waitpid(std::exchange(pid_, 0), &status, 0);
    if (!in_time || ended <= 0) return code_;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }

 private:
  static constexpr std::chrono::seconds kLimit = std::chrono::seconds(120);

  [[noreturn]] static void become(const std::vector<std::string>& command,
                                  const std::vector<std::string>& environment, int output) {
    ::setpgid(0, 0);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    for (const std::string& one : environment) ::putenv(const_cast<char*>(one.c_str()));
    ::execvp(words[0], words.data());
    ::perror(words[0]);
    ::_exit(127);
  }
  void read_all(int from) {
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(from, bytes.data(), bytes.size())) > 0;) {
      const internal::base::MutexLock lock(mutex_);
      text_.append(bytes.data(), static_cast<std::size_t>(got));
      changed_.notify_all();
    }
    ::close(from);
    const internal::base::MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  pid_t pid_ = 0;
  int code_ = -1;
  std::thread reader_;
  mutable internal::base::Mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::string text_ COHORT_GUARDED_BY(mutex_);
  bool closed_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::testing
