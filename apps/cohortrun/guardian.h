// SPDX-License-Identifier: Apache-2.0
//
// Ends the tasks' process groups on this host where cohortrun itself is killed (kill -9) and
// cannot: what hears SIGTERM from the system then is the tasks alone, not what these have started.
// What has left its task's group (setsid) stays.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace cohortrun {

/// A process of its own, which lives as long as cohortrun does, and for as long after it as the
/// process groups that it was told of need to end: they get SIGTERM, and SIGKILL when the grace is
/// over.
class Guardian {
 public:
  /// Errors: std::runtime_error if the system has no processes or pipes.
  explicit Guardian(std::chrono::seconds grace);
  ~Guardian();  ///< Nothing is left to be ended.
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void begins(pid_t group) const { tell(group); }
  /// None of the group is left, and its number may become another's.
  void has_ended(pid_t group) const { tell(-group); }
  pid_t pid() const { return pid_; }

 private:
  void tell(pid_t number) const;

  pid_t pid_ = -1;
  int told_ = -1;
};

}  // namespace cohortrun
