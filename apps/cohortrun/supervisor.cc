// SPDX-License-Identifier: Apache-2.0
#include "supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "cohort/base/strings.h"
#include "output.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using Clock = std::chrono::steady_clock;

// Between the first failure and SIGTERM.
constexpr std::chrono::seconds kMoment{1};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  return set;
}

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe new_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error(str_cat("expected a pipe, got: ", std::strerror(errno)));
  }
  return {ends[0], ends[1]};
}

// In the child: becomes the program.
[[noreturn]] void become(const Task& task, const std::vector<std::string>& command, pid_t parent,
                         const Pipe& out, const Pipe& err) {
  ::setpgid(0, 0);  // Ctrl-C reaches cohortrun, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::dup2(out.write, STDOUT_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  for (const std::string& variable : task.environment) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  if (!task.cpus.empty()) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const int cpu : task.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
    ::sched_setaffinity(0, sizeof cpus, &cpus);
  }
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "cohortrun: cannot start %s: %s\n", arguments[0], std::strerror(error));
  std::fflush(stderr);
  ::_exit(error == ENOENT ? 127 : 126);
}

class Supervisor {
 public:
  Supervisor(const std::vector<Task>& tasks, const std::vector<std::string>& command,
             const SupervisorOptions& options);
  ~Supervisor();
  int run();

 private:
  struct Process {
    const Task* task = nullptr;
    pid_t pid = 0;
    std::optional<int> status = {};  // as waitpid has it
  };
  void start(const Task& task, const std::vector<std::string>& command);
  bool any_alive() const;
  void signal_all(int signal);
  void end_all(int signal);
  void read_signals();
  void reap();
  void wait_for_something();
  const Process* cause() const;
  int report() const;

  const SupervisorOptions options_;
  int signals_ = -1;
  std::vector<Process> processes_;
  std::vector<PrefixedOutput> outputs_;
  std::vector<const Process*> failed_;        // in their order, before any were asked to end
  std::optional<Clock::time_point> ask_at_;   // what still lives then to end
  std::optional<Clock::time_point> kill_at_;  // what still lives then
};

Supervisor::Supervisor(const std::vector<Task>& tasks, const std::vector<std::string>& command,
                       const SupervisorOptions& options)
    : options_(options) {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0) {
    throw std::runtime_error(str_cat("expected a signal descriptor, got: ", std::strerror(errno)));
  }
  for (const Task& task : tasks) start(task, command);
}

Supervisor::~Supervisor() {
  signal_all(SIGKILL);
  for (Process& each : processes_) {
    if (!each.status) ::waitpid(each.pid, nullptr, 0);
  }
  ::close(signals_);
}

void Supervisor::start(const Task& task, const std::vector<std::string>& command) {
  const Pipe out = new_pipe();
  const Pipe err = new_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(task, command, parent, out, err);
  ::close(out.write);
  ::close(err.write);
  const std::string prefix = "[" + task.name() + "] ";
  outputs_.emplace_back(out.read, STDOUT_FILENO, prefix);
  outputs_.emplace_back(err.read, STDERR_FILENO, prefix);
  if (pid < 0) {
    signal_all(SIGKILL);
    throw std::runtime_error(
        str_cat("expected a process for ", task.name(), ", got: ", std::strerror(errno)));
  }
  ::setpgid(pid, pid);  // whoever of the two is first
  processes_.push_back({.task = &task, .pid = pid});
}

bool Supervisor::any_alive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& each) { return !each.status; });
}

void Supervisor::signal_all(int signal) {
  for (const Process& each : processes_) {
    if (!each.status) ::kill(-each.pid, signal);
  }
}

// Asks them to end, and later does it.
void Supervisor::end_all(int signal) {
  signal_all(signal);
  // One that is stopped hears nothing before it goes on.
  signal_all(SIGCONT);
  if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) end_all(signal);
  }
}

// When one fails, the others notice by themselves, and say so, if they are given a moment.
void Supervisor::reap() {
  for (Process& each : processes_) {
    int status = 0;
    if (each.status || ::waitpid(each.pid, &status, WNOHANG) != each.pid) continue;
    each.status = status;
    ::kill(-each.pid, SIGTERM);  // what it has left behind
    if (status == 0 || kill_at_) continue;
    failed_.push_back(&each);
    if (!ask_at_) ask_at_ = Clock::now() + kMoment;
  }
}

// One that was killed did not do so because of the others.
const Supervisor::Process* Supervisor::cause() const {
  const auto killed = std::find_if(failed_.begin(), failed_.end(),
                                   [](const Process* each) { return WIFSIGNALED(*each->status); });
  if (killed != failed_.end()) return *killed;
  if (!failed_.empty()) return failed_.front();
  const auto any = std::find_if(processes_.begin(), processes_.end(),
                                [](const Process& each) { return *each.status != 0; });
  return any == processes_.end() ? nullptr : &*any;
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> polled = {{.fd = signals_, .events = POLLIN, .revents = 0}};
  for (const PrefixedOutput& each : outputs_) {
    polled.push_back({.fd = each.fd(), .events = POLLIN, .revents = 0});
  }
  int timeout = -1;
  const auto next = kill_at_ ? kill_at_ : ask_at_;
  if (next) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  ::poll(polled.data(), polled.size(), timeout);
}

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return str_cat("ended with exit code ", WEXITSTATUS(status));
  return str_cat("was killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)),
                 ")");
}

int Supervisor::report() const {
  const Process* first = cause();
  if (first == nullptr) return 0;
  const int status = *first->status;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  std::string text = str_cat(first->task->name(), " ", how_it_ended(status));
  for (const Process* each : failed_) {
    if (each != first)
      text += str_cat(", then ", each->task->name(), " ", how_it_ended(*each->status));
  }
  const bool all_failed = failed_.size() == processes_.size();
  std::fprintf(stderr, "cohortrun: %s%s; exit code %d\n", text.c_str(),
               all_failed || failed_.empty() ? "" : "; the others were ended", code);
  return code;
}

int Supervisor::run() {
  while (any_alive()) {
    wait_for_something();
    read_signals();
    for (PrefixedOutput& each : outputs_) each.pass_on();
    reap();
    if (ask_at_ && !kill_at_ && Clock::now() >= *ask_at_) end_all(SIGTERM);
    if (kill_at_ && Clock::now() >= *kill_at_) signal_all(SIGKILL);
  }
  for (PrefixedOutput& each : outputs_) {
    each.pass_on();
    each.finish();
  }
  return report();
}

}  // namespace

int run_job(const std::vector<Task>& tasks, const std::vector<std::string>& command,
            const SupervisorOptions& options) {
  return Supervisor(tasks, command, options).run();
}

}  // namespace cohortrun
