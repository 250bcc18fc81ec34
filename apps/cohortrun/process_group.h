// SPDX-License-Identifier: Apache-2.0
//
// Processes of this host that begin together, and are ended together.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guardian.h"

namespace cohortrun {

using Clock = std::chrono::steady_clock;

/// SIGCHLD and the signals that end programs, which cohortrun reads instead of being interrupted.
class Signals {
 public:
  /// Errors: std::runtime_error if the system has no descriptor for them.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  /// The next one that asks to end, if one has come.
  std::optional<int> next();
  /// For a child: as if there were none of this.
  static void unblock();

 private:
  int fd_ = -1;
};

struct ProcessSpec {
  std::vector<std::string> environment = {};  ///< "NAME=value", or "NAME": to be unset.
  std::vector<int> cpus = {};                 ///< Empty: as cohortrun itself.
};

/// Takes what a process writes (stream 1 or 2); no bytes: nothing more comes.
using OutputSink = std::function<void(std::size_t process, int stream, std::string_view bytes)>;

/// Where this process is killed, they are ended all the same (guardian.h).
class ProcessGroup {
 public:
  struct Settings {
    std::vector<std::string> command = {};
    std::string directory = {};      ///< Empty: where cohortrun is.
    std::chrono::seconds grace{30};  ///< Between SIGTERM and SIGKILL.
    bool no_input = false;           ///< Standard input is cohortrun's own.
  };
  /// Errors: as start().
  ProcessGroup(Settings settings, OutputSink sink);
  ~ProcessGroup();  ///< Kills what still lives.
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// Errors: std::runtime_error if the system has no processes or pipes; none is left then.
  void start(const std::vector<ProcessSpec>& specs);
  /// One that has ended, once more. Errors: as start().
  void start_again(std::size_t process, const ProcessSpec& spec);
  bool any_alive() const;
  /// Whether what they have left behind still lives: it has been asked to end, and is killed when
  /// the grace is over.
  bool any_left() const { return !left_.empty(); }
  /// Reads nothing of what they write, so that they wait; until end() at the latest. Who has ended
  /// is heard of all the same, with what its pipes hold.
  void pause(bool paused) { is_paused_ = paused; }
  /// A child of this process that is none of a group's.
  static void is_no_ones(pid_t child);
  /// Passes the signal on to all; what lives when the grace is over is killed.
  void end(int signal);
  /// The same to one.
  void end_one(std::size_t process, int signal);

  void add_polled(std::vector<pollfd>* polled) const;
  /// When step() has something to do by itself.
  std::optional<Clock::time_point> next_deadline() const;
  struct Ended {
    std::size_t process = 0;
    int status = 0;  ///< As waitpid has it.
  };
  /// Passes on what was written, and says who has ended since.
  std::vector<Ended> step();

 private:
  struct Process {
    pid_t pid = 0;
    std::optional<int> status = {};
  };
  struct Stream {
    int fd = -1;
    std::size_t process = 0;
    int number = 1;
  };
  // A process, or minus a process group, that lives longer than the process that it comes from.
  struct Left {
    pid_t who = 0;
    Clock::time_point kill_at = {};
  };
  bool all_wait() const { return is_paused_ && !is_ending_; }
  void start_one(const ProcessSpec& spec, std::size_t number);
  void end_left(pid_t who);
  void look_at_what_is_left();
  void signal_all(int signal);
  void read(Stream& stream);
  void close(Stream& stream);

  const Settings settings_;
  const OutputSink sink_;
  const Guardian guardian_;
  std::vector<Process> processes_;
  std::vector<Stream> streams_;
  std::vector<Left> left_;
  std::optional<Clock::time_point> kill_at_;
  bool is_paused_ = false;
  bool is_ending_ = false;
};

}  // namespace cohortrun
