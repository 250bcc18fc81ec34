// SPDX-License-Identifier: Apache-2.0
//
// The harness's end of the pipe to a contender:
//
//   ContenderProcess peer({"python", "jax_peer.py", "jit"}, {}, "jax.log");
//   std::string versions = peer.receive(60s);   // what follows "ready"
//   peer.send("run 500");
//   std::string times = peer.receive(60s);      // what follows "ok"
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace cohort::bench {

/// A running contender. Threads: used by one thread. Owns: the process and what it starts (one
/// process group), ended in the destructor.
class ContenderProcess {
 public:
  /// Starts `command` with `environment` ("NAME=value") added; standard error goes to `log`.
  /// Errors: Unavailable where it cannot be started.
  ContenderProcess(const std::vector<std::string>& command,
                   const std::vector<std::string>& environment, const std::string& log);
  ~ContenderProcess();
  ContenderProcess(const ContenderProcess&) = delete;
  ContenderProcess& operator=(const ContenderProcess&) = delete;

  void send(const std::string& line);

  /// Blocks: until the next line, at most `limit`. Returns what follows its first word.
  /// Errors: DeadlineExceeded; Unavailable where the contender is gone or answers "error".
  std::string receive(std::chrono::seconds limit);

  int process_group() const { return pid_; }

 private:
  bool exited_within(std::chrono::milliseconds limit);

  std::string name_;
  std::string log_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace cohort::bench
