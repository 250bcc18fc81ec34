// SPDX-License-Identifier: Apache-2.0
//
// SIGTERM, by which schedulers and launchers say that a process has to end soon; and its end.
#pragma once

namespace cohort::internal::base {

/// The exit status of a process that SIGTERM has ended: 128 + 15. Kubeflow's restart policy
/// ExitCode starts again what ended with 128 to 255.
inline constexpr int kTerminatedExitCode = 143;

/// Watches SIGTERM for its lifetime: the signal is counted instead of ending the process. All of
/// them share one handler; the last one gives the signal back to whoever had it, and one that has
/// come and was not answered, too: it is raised again.
/// Threads: thread-safe.
class [[nodiscard]] TerminationSignal {
 public:
  TerminationSignal();
  ~TerminationSignal();
  TerminationSignal(const TerminationSignal&) = delete;
  TerminationSignal& operator=(const TerminationSignal&) = delete;

  /// True once SIGTERM has come in its lifetime. Cost: one load.
  bool has_come() const;
  /// What it asks for is done here.
  void answer() const;

 private:
  const unsigned before_;  // how many had come
};

/// Ends the process with what was printed, but without destructors of statics, which other threads
/// may still use.
[[noreturn]] void exit_now(int code);

}  // namespace cohort::internal::base
