// SPDX-License-Identifier: Apache-2.0
#include "process_group.h"

#include <fcntl.h>
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
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

// How long one that was killed is waited for.
constexpr std::chrono::seconds kDiesWithin{5};
// More than a pipe holds.
constexpr int kReadsAtOnce = 16;

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
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

std::set<pid_t>& no_ones_children() {
  static std::set<pid_t> children;
  return children;
}

// Of this process, also those that it has got when their parents ended.
std::vector<pid_t> all_children() {
  std::vector<pid_t> out;
  std::ifstream file(str_cat("/proc/self/task/", ::getpid(), "/children"));
  for (pid_t each = 0; file >> each;) out.push_back(each);
  return out;
}

void set_environment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) {
      ::unsetenv(variable.c_str());
    } else {
      ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    }
  }
}

void stay_on(const std::vector<int>& allowed) {
  if (allowed.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : allowed) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

[[noreturn]] void fail_to_start(const char* what, int error) {
  std::fprintf(stderr, "cohortrun: cannot start %s: %s\n", what, std::strerror(error));
  std::fflush(stderr);
  ::_exit(error == ENOENT ? 127 : 126);
}

// In the child: becomes the program.
[[noreturn]] void become(const ProcessSpec& spec, const ProcessGroup::Settings& settings,
                         pid_t parent, const Pipe& out, const Pipe& err) {
  ::setpgid(0, 0);  // Ctrl-C reaches cohortrun, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  Signals::unblock();
  ::signal(SIGPIPE, SIG_DFL);
  if (settings.no_input) ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(out.write, STDOUT_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  set_environment(spec.environment);
  stay_on(spec.cpus);
  if (!settings.directory.empty() && ::chdir(settings.directory.c_str()) != 0) {
    fail_to_start(str_cat("in ", settings.directory).c_str(), errno);
  }
  std::vector<char*> arguments;
  for (const std::string& each : settings.command) {
    arguments.push_back(const_cast<char*>(each.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  fail_to_start(arguments[0], errno);
}

}  // namespace

Signals::Signals() {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) {
    throw std::runtime_error(str_cat("expected a signal descriptor, got: ", std::strerror(errno)));
  }
}

Signals::~Signals() { ::close(fd_); }

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  while (::read(fd_, &info, sizeof info) == sizeof info) {
    if (const auto signal = static_cast<int>(info.ssi_signo); signal != SIGCHLD) return signal;
  }
  return {};
}

void Signals::unblock() {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

ProcessGroup::ProcessGroup(Settings settings, OutputSink sink)
    : settings_(std::move(settings)), sink_(std::move(sink)), guardian_(settings_.grace) {
  is_no_ones(guardian_.pid());
}

ProcessGroup::~ProcessGroup() {
  signal_all(SIGKILL);
  for (const Left& each : left_) ::kill(each.who, SIGKILL);
  for (const Process& each : processes_) {
    if (!each.status) ::waitpid(each.pid, nullptr, 0);
  }
  for (const Stream& each : streams_) {
    if (each.fd >= 0) ::close(each.fd);
  }
}

void ProcessGroup::start(const std::vector<ProcessSpec>& specs) {
  for (const Left& each : left_) {
    ::kill(each.who, SIGKILL);
    if (each.who < 0) guardian_.has_ended(-each.who);
  }
  left_.clear();
  processes_.clear();
  streams_.clear();
  kill_at_.reset();
  is_ending_ = false;
  for (const ProcessSpec& spec : specs) start_one(spec, processes_.size());
}

void ProcessGroup::start_again(std::size_t process, const ProcessSpec& spec) {
  for (Stream& each : streams_) {
    if (each.process == process && each.fd >= 0) close(each);
  }
  std::erase_if(streams_, [&](const Stream& each) { return each.process == process; });
  start_one(spec, process);
}

void ProcessGroup::start_one(const ProcessSpec& spec, std::size_t number) {
  const Pipe out = new_pipe();
  const Pipe err = new_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(spec, settings_, parent, out, err);
  const int error = errno;
  ::close(out.write);
  ::close(err.write);
  streams_.push_back({.fd = out.read, .process = number, .number = 1});
  streams_.push_back({.fd = err.read, .process = number, .number = 2});
  if (pid < 0) {
    throw std::runtime_error(str_cat("expected a process, got: ", std::strerror(error)));
  }
  ::setpgid(pid, pid);  // whoever of the two is first
  guardian_.begins(pid);
  if (number == processes_.size()) processes_.emplace_back();
  processes_[number] = {.pid = pid};
}

void ProcessGroup::is_no_ones(pid_t child) { no_ones_children().insert(child); }

bool ProcessGroup::any_alive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& each) { return !each.status; });
}

void ProcessGroup::signal_all(int signal) {
  for (std::size_t i = 0; i < processes_.size(); ++i) end_one(i, signal);
}

void ProcessGroup::end_one(std::size_t process, int signal) {
  const Process& each = processes_.at(process);
  if (each.status) return;
  ::kill(-each.pid, signal);
  ::kill(-each.pid, SIGCONT);  // one that is stopped hears nothing before it goes on
}

void ProcessGroup::end(int signal) {
  signal_all(signal);
  is_ending_ = true;
  if (!kill_at_) kill_at_ = Clock::now() + settings_.grace;
}

std::optional<Clock::time_point> ProcessGroup::next_deadline() const {
  std::optional<Clock::time_point> next = kill_at_;
  for (const Left& each : left_) {
    // Then killed, and then given up.
    const auto at = Clock::now() < each.kill_at ? each.kill_at : each.kill_at + kDiesWithin;
    if (!next || at < *next) next = at;
  }
  return next;
}

void ProcessGroup::add_polled(std::vector<pollfd>* polled) const {
  if (all_wait()) return;
  for (const Stream& each : streams_) {
    if (each.fd >= 0) polled->push_back({.fd = each.fd, .events = POLLIN, .revents = 0});
  }
}

void ProcessGroup::close(Stream& stream) {
  ::close(std::exchange(stream.fd, -1));
  sink_(stream.process, stream.number, {});
}

void ProcessGroup::read(Stream& stream) {
  std::array<char, 16384> bytes;
  // Not for ever: others have something to say, too.
  for (int reads = 0; reads < kReadsAtOnce && stream.fd >= 0; ++reads) {
    const ssize_t got = ::read(stream.fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close(stream);
    sink_(stream.process, stream.number, {bytes.data(), static_cast<std::size_t>(got)});
  }
}

void ProcessGroup::end_left(pid_t who) {
  const bool is_known =
      std::any_of(left_.begin(), left_.end(), [&](const Left& each) { return each.who == who; });
  if (is_known) return;
  if (::kill(who, SIGTERM) != 0) {
    if (who < 0) guardian_.has_ended(-who);
    return;
  }
  ::kill(who, SIGCONT);
  left_.push_back({.who = who, .kill_at = Clock::now() + settings_.grace});
}

void ProcessGroup::look_at_what_is_left() {
  for (const pid_t child : all_children()) {
    const bool is_process =
        std::any_of(processes_.begin(), processes_.end(),
                    [&](const Process& each) { return each.pid == child && !each.status; });
    if (is_process || no_ones_children().count(child) > 0) continue;
    // An orphan. While a process lives it may be one that this has put there.
    if (::waitpid(child, nullptr, WNOHANG) == 0 && !any_alive()) end_left(child);
  }
  std::erase_if(left_, [this](const Left& each) {
    if (Clock::now() >= each.kill_at) ::kill(each.who, SIGKILL);
    const bool is_over = ::kill(each.who, 0) != 0 || Clock::now() >= each.kill_at + kDiesWithin;
    if (is_over && each.who < 0) guardian_.has_ended(-each.who);
    return is_over;
  });
}

std::vector<ProcessGroup::Ended> ProcessGroup::step() {
  std::vector<Ended> ended;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& each = processes_[i];
    int status = 0;
    if (each.status || ::waitpid(each.pid, &status, WNOHANG) != each.pid) continue;
    each.status = status;
    end_left(-each.pid);
    ended.push_back({.process = i, .status = status});
  }
  // Afterwards, so that the last lines of who has ended are known with its end: those that its pipe
  // holds also where the others wait.
  for (Stream& each : streams_) {
    const bool has_just_ended = std::any_of(
        ended.begin(), ended.end(), [&](const Ended& one) { return one.process == each.process; });
    if (!all_wait() || has_just_ended) read(each);
  }
  if (kill_at_ && Clock::now() >= *kill_at_) {
    signal_all(SIGKILL);
    kill_at_.reset();
  }
  if (!processes_.empty() && (!left_.empty() || !ended.empty())) look_at_what_is_left();
  if (!any_alive()) {
    for (Stream& each : streams_) {
      if (each.fd >= 0) close(each);
    }
  }
  return ended;
}

}  // namespace cohortrun
