// SPDX-License-Identifier: Apache-2.0
#include "coordinator.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

// Between the first failure and SIGTERM: the others notice by themselves, and say so, if they are
// given a moment.
constexpr std::chrono::seconds kMoment{2};
// Of a task whose node is gone: as if it had hung up.
constexpr int kLostCode = 128 + SIGHUP;
constexpr std::size_t kMostNamed = 8;

struct Failure {
  std::string who = {};  // "worker 1 on host b"
  int code = 0;
  bool killed = false;  // by a signal, or lost with its node
  std::string how = {};
  std::vector<std::string> tail = {};
};

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return str_cat("ended with exit code ", WEXITSTATUS(status));
  return str_cat("was killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)),
                 ")");
}

Failure failure_of(std::string who, const Event& event) {
  const bool killed = WIFSIGNALED(event.status);
  return {.who = std::move(who),
          .code = killed ? 128 + WTERMSIG(event.status) : WEXITSTATUS(event.status),
          .killed = killed,
          .how = how_it_ended(event.status),
          .tail = event.tail};
}

class Coordinator {
 public:
  Coordinator(const JobSettings& settings, std::vector<std::unique_ptr<Node>> nodes, Door* door,
              Signals& signals);
  int run();

 private:
  enum class State { kGathering, kPreparing, kRunning, kOver };
  void wait_for_something();
  void read_signals();
  void gather();
  void start_all();
  void end_all(int signal);
  void handle(std::size_t node, const Event& event);
  void ready(std::size_t node, const NodeAddress& address);
  void ended(std::size_t node, const Event& event);
  void lost(std::size_t node, const std::string& why);
  bool has_servers() const;
  bool is_server(const Task& task) const;
  bool start_again(std::size_t node, const Event& event);
  void failed(Failure failure);
  void end_servers();
  void check_time();
  void finish_attempt();
  const Failure* cause() const;
  void report(const Failure& first) const;
  bool may_restart(int code) const;
  void write_the_rest();
  std::vector<RemoteNode*> remote_nodes() const;

  const JobSettings settings_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Door* const door_;
  Signals& signals_;

  State state_ = State::kGathering;
  int attempt_ = 0;
  int restarts_ = 0;                                                // of all tasks, or of one
  std::map<std::pair<std::size_t, std::size_t>, int> restarts_of_;  // in this attempt
  int code_ = 0;
  Clock::time_point gathering_since_ = Clock::now();
  std::vector<std::vector<Task>> tasks_;  // of each node
  std::vector<std::optional<NodeAddress>> addresses_;
  std::vector<std::vector<bool>> alive_;  // of each node's tasks
  std::size_t tasks_in_all_ = 0;
  std::vector<Failure> failed_;                  // in their order, before any were asked to end
  std::optional<Failure> later_;                 // the first of those that failed when asked
  std::optional<Clock::time_point> ask_at_;      // what still lives then to end
  bool asked_ = false;                           // all to end
  std::optional<Clock::time_point> chief_done_;  // of a job with parameter servers
  int user_signal_ = 0;
};

Coordinator::Coordinator(const JobSettings& settings, std::vector<std::unique_ptr<Node>> nodes,
                         Door* door, Signals& signals)
    : settings_(settings), nodes_(std::move(nodes)), door_(door), signals_(signals) {}

std::vector<RemoteNode*> Coordinator::remote_nodes() const {
  std::vector<RemoteNode*> out;
  for (const auto& each : nodes_) out.push_back(dynamic_cast<RemoteNode*>(each.get()));
  return out;
}

void Coordinator::wait_for_something() {
  std::vector<pollfd> polled = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  Clock::time_point next = ask_at_ && !asked_ ? *ask_at_ : Clock::time_point::max();
  for (const auto& node : nodes_) {
    node->add_polled(&polled);
    next = std::min(next, node->next_deadline().value_or(next));
  }
  if (chief_done_ && !asked_) next = std::min(next, *chief_done_ + kMoment);
  if (door_ != nullptr) door_->add_polled(&polled);
  Console::add_polled(&polled);
  if (state_ == State::kGathering) {
    next = std::min(next, gathering_since_ + settings_.nodes_timeout);
  }
  int timeout = -1;
  if (next != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  ::poll(polled.data(), polled.size(), timeout);
}

void Coordinator::read_signals() {
  while (const auto signal = signals_.next()) {
    if (user_signal_ == 0) user_signal_ = *signal;
    if (state_ == State::kRunning) {
      end_all(*signal);
    } else {
      code_ = 128 + *signal;
      state_ = State::kOver;
    }
  }
}

// When all are there, each chooses its ports.
void Coordinator::gather() {
  std::size_t here = 0;
  for (const auto& node : nodes_) here += node->is_there() ? 1 : 0;
  if (here < nodes_.size()) {
    if (Clock::now() < gathering_since_ + settings_.nodes_timeout) return;
    throw std::runtime_error(str_cat("expected ", nodes_.size(), " nodes within ",
                                     settings_.nodes_timeout.count(), " s (--rdzv-timeout), got ",
                                     here));
  }
  tasks_ = settings_.tasks;
  if (tasks_.empty()) {
    TaskCounts counts;
    std::vector<int> slots;
    for (const auto& node : nodes_) slots.push_back(node->slots());
    for (const int each : slots) counts.workers += each;
    tasks_ = place(tasks_of(counts), slots);
  }
  addresses_.assign(nodes_.size(), std::nullopt);
  state_ = State::kPreparing;
  for (std::size_t n = 0; n < nodes_.size(); ++n) nodes_[n]->prepare(tasks_[n].size() + kMorePorts);
}

void Coordinator::ready(std::size_t node, const NodeAddress& address) {
  if (state_ != State::kPreparing || address.ports.size() != tasks_[node].size() + kMorePorts)
    return;
  addresses_[node] = address;
  const bool all = std::all_of(addresses_.begin(), addresses_.end(),
                               [](const auto& each) { return each.has_value(); });
  if (all) start_all();
}

void Coordinator::start_all() {
  std::vector<NodeAddress> addresses;
  for (const auto& each : addresses_) addresses.push_back(*each);
  const auto plans = plans_of(
      {.run_id = settings_.run_id, .attempt = attempt_, .max_restarts = settings_.max_restarts},
      settings_.security, tasks_, addresses);
  state_ = State::kRunning;
  failed_.clear();
  later_.reset();
  ask_at_.reset();
  chief_done_.reset();
  asked_ = false;
  alive_.clear();
  tasks_in_all_ = 0;
  for (const auto& tasks : tasks_) {
    alive_.emplace_back(tasks.size(), true);
    tasks_in_all_ += tasks.size();
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) nodes_[n]->start(plans[n]);
}

void Coordinator::end_all(int signal) {
  asked_ = true;
  Console::leave_out();
  for (const auto& node : nodes_) node->end(signal);
}

void Coordinator::handle(std::size_t node, const Event& event) {
  switch (event.kind) {
    case Event::Kind::kReady:
      return ready(node, event.address);
    case Event::Kind::kEnded:
      return ended(node, event);
    case Event::Kind::kLost:
      return lost(node, event.why);
  }
}

void Coordinator::failed(Failure failure) {
  if (asked_) {
    if (!later_) later_ = std::move(failure);
    return;
  }
  failed_.push_back(std::move(failure));
  if (!ask_at_) ask_at_ = Clock::now() + kMoment;
}

void Coordinator::ended(std::size_t node, const Event& event) {
  if (state_ != State::kRunning || event.task >= alive_[node].size()) return;
  alive_[node][event.task] = false;
  const Task& task = tasks_[node][event.task];
  if (task.type == "chief" && event.status == 0 && has_servers()) chief_done_ = Clock::now();
  if (chief_done_ && is_server(task)) return;
  if (event.status != 0 && start_again(node, event)) return;
  if (event.status != 0) failed(failure_of(task.name() + nodes_[node]->where(), event));
}

bool Coordinator::has_servers() const {
  const auto is_ps = [](const Task& each) { return each.type == "ps"; };
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& tasks) {
    return std::any_of(tasks.begin(), tasks.end(), is_ps);
  });
}

// Whether it ends only when it is told: parameter servers, and the workers whose chief has done
// all.
bool Coordinator::is_server(const Task& task) const {
  return task.type == "ps" || (chief_done_ && task.type == "worker");
}

// A task alone, where the job has parameter servers: the chief waits for a worker or a server that
// comes back, and those for a chief that was killed. False: its failure is the job's, as that of a
// chief whose program ends itself.
bool Coordinator::start_again(std::size_t node, const Event& event) {
  const Task& task = tasks_[node][event.task];
  const Failure failure = failure_of(task.name() + nodes_[node]->where(), event);
  const bool is_one =
      task.type == "ps" || task.type == "worker" || (task.type == "chief" && failure.killed);
  if (!has_servers() || !is_one || asked_ || ask_at_ || !may_restart(failure.code)) return false;
  ++restarts_;
  alive_[node][event.task] = true;
  Console::of(2).write(str_cat("cohortrun: ", failure.who, " ", failure.how,
                               "; starting it again (restart ", restarts_, " of ",
                               settings_.max_restarts, ")\n"));
  nodes_[node]->start_again(event.task, ++restarts_of_[{node, event.task}]);
  return true;
}

void Coordinator::lost(std::size_t node, const std::string& why) {
  if (state_ == State::kOver) return;
  if (state_ != State::kRunning) {
    if (door_ == nullptr) {
      throw std::runtime_error(
          str_cat("expected cohortrun", nodes_[node]->where(), ", got: ", why));
    }
    state_ = State::kGathering;  // it may come back
    return;
  }
  for (std::size_t t = 0; t < alive_[node].size(); ++t) {
    if (!alive_[node][t]) continue;
    alive_[node][t] = false;
    failed({.who = tasks_[node][t].name() + nodes_[node]->where(),
            .code = kLostCode,
            .killed = true,
            .how = str_cat("is gone: ", why)});
  }
}

// They do not end by themselves.
void Coordinator::end_servers() {
  if (asked_ || ask_at_) return;
  bool any_server = false;
  for (std::size_t n = 0; n < tasks_.size(); ++n) {
    for (std::size_t t = 0; t < tasks_[n].size(); ++t) {
      if (!alive_[n][t]) continue;
      if (!is_server(tasks_[n][t])) return;
      any_server = true;
    }
  }
  // The chief has told its workers, who are given a moment.
  if (any_server && (!chief_done_ || Clock::now() >= *chief_done_ + kMoment)) end_all(SIGTERM);
}

void Coordinator::check_time() {
  if (state_ != State::kRunning) return;
  if (ask_at_ && !asked_ && Clock::now() >= *ask_at_) end_all(SIGTERM);
  end_servers();
  const bool any_alive = std::any_of(alive_.begin(), alive_.end(), [](const auto& node) {
    return std::find(node.begin(), node.end(), true) != node.end();
  });
  const bool any_left =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->any_left(); });
  if (!any_alive && !any_left) finish_attempt();
}

// How likely it is that the others are why it failed: they are not where a signal killed it, they
// may be where it has ended itself, and 134 says that they are (cohort::exit_code_of).
int is_because_of_others(const Failure& failure) {
  constexpr int kBecauseOfOthers = 128 + SIGABRT;
  if (failure.code == kBecauseOfOthers) return failure.killed ? 1 : 2;
  return failure.killed ? 0 : 1;
}

// The first of those that have a reason of their own, in so far as it can be told: who has lost
// another one often ends ahead of it.
const Failure* Coordinator::cause() const {
  const auto first =
      std::min_element(failed_.begin(), failed_.end(), [](const Failure& a, const Failure& b) {
        return is_because_of_others(a) < is_because_of_others(b);
      });
  if (first != failed_.end()) return &*first;
  // Who fails when it is asked to end has a reason only if somebody else has asked.
  return later_ && user_signal_ != 0 ? &*later_ : nullptr;
}

void Coordinator::report(const Failure& first) const {
  std::string text = str_cat(first.who, " ", first.how);
  std::size_t named = 1;
  for (const Failure& each : failed_) {
    if (&each == &first || ++named > kMostNamed) continue;
    text += str_cat(", then ", each.who, " ", each.how);
  }
  if (named > kMostNamed) text += str_cat(", then ", named - kMostNamed, " more");
  const bool all_failed = failed_.size() == tasks_in_all_;
  text =
      str_cat("cohortrun: ", text, all_failed || failed_.empty() ? "" : "; the others were ended",
              "; exit code ", first.code, "\n");
  if (!failed_.empty() && !first.tail.empty()) {
    text += str_cat("cohortrun: the last lines of ", first.who, ":\n");
    for (const std::string& line : first.tail) text += str_cat("cohortrun:   ", line, "\n");
  }
  Console::of(2).write(text);
}

bool Coordinator::may_restart(int code) const {
  if (code == 0 || user_signal_ != 0 || restarts_ >= settings_.max_restarts) return false;
  return settings_.policy == RestartPolicy::kOnFailure ||
         (settings_.policy == RestartPolicy::kExitCode && code >= 128);
}

void Coordinator::finish_attempt() {
  const Failure* first = cause();
  if (first != nullptr) report(*first);
  const int code = first == nullptr ? 0 : first->code;
  if (!may_restart(code)) {
    code_ = code;
    state_ = State::kOver;
    return;
  }
  const bool gone_for_good =
      door_ == nullptr &&
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return !node->is_there(); });
  if (gone_for_good) {
    Console::of(2).write("cohortrun: no restart: the host is gone\n");
    code_ = code;
    state_ = State::kOver;
    return;
  }
  ++attempt_;
  ++restarts_;
  restarts_of_.clear();
  Console::of(2).write(str_cat("cohortrun: starting all tasks again (restart ", restarts_, " of ",
                               settings_.max_restarts, ")\n"));
  gathering_since_ = Clock::now();
  state_ = State::kGathering;
}

// What the tasks have written. Whoever has asked for the end waits for it no longer than a moment.
void Coordinator::write_the_rest() {
  const auto until = Clock::now() + kMoment;
  Console::finish(signals_.fd(), [&] {
    if (const auto signal = signals_.next()) user_signal_ = *signal;
    return user_signal_ != 0 && Clock::now() >= until;
  });
}

int Coordinator::run() {
  const std::vector<RemoteNode*> remotes = remote_nodes();
  while (state_ != State::kOver) {
    if (state_ == State::kGathering) gather();
    wait_for_something();
    read_signals();
    if (door_ != nullptr) door_->step(remotes);
    Console::flush();
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      nodes_[n]->pause(Console::any_is_full() && !asked_);
      for (const Event& event : nodes_[n]->step()) handle(n, event);
    }
    // Who came back before its end was told.
    if (door_ != nullptr) door_->step(remotes);
    check_time();
  }
  for (const auto& node : nodes_) node->finish(code_);
  write_the_rest();
  return code_;
}

}  // namespace

int lead_job(const JobSettings& settings, std::vector<std::unique_ptr<Node>> nodes, Door* door,
             Signals& signals) {
  return Coordinator(settings, std::move(nodes), door, signals).run();
}

}  // namespace cohortrun
