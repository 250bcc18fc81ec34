// SPDX-License-Identifier: Apache-2.0
#include "node.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "cohort/base/strings.h"
#include "network.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using nlohmann::json;

// A node that takes no message for so long is gone.
constexpr std::chrono::seconds kSendLimit{20};

// 20 ms each.
constexpr int kTriesForSsh = 500;

int number_in(std::string_view text, int otherwise) {
  int number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string event_to_json(const Event& event) {
  if (event.kind == Event::Kind::kReady) {
    return json{{"host", event.address.host}, {"ports", event.address.ports}}.dump();
  }
  // What a program writes need not be UTF-8.
  return json{{"task", event.task}, {"status", event.status}, {"tail", event.tail}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

Event event_from_json(Event::Kind kind, const std::string& text) {
  Event event{.kind = kind};
  try {
    const json parsed = json::parse(text);
    if (kind == Event::Kind::kReady) {
      event.address.host = parsed.at("host").get<std::string>();
      event.address.ports = parsed.at("ports").get<std::vector<int>>();
    } else {
      event.task = parsed.at("task").get<std::size_t>();
      event.status = parsed.at("status").get<int>();
      event.tail = parsed.at("tail").get<std::vector<std::string>>();
    }
  } catch (const json::exception& e) {
    throw std::runtime_error(str_cat("expected an event, got: ", e.what()));
  }
  return event;
}

TaskOutputs::TaskOutputs(const NodePlan& plan, const OutputOptions& options) {
  int local_rank = 0;
  for (const Task& task : plan.tasks) {
    OutputPlace place{.name = task.name(), .rank = task.rank};
    if (task.rank >= 0) place.local_rank = local_rank++;
    if (!options.log_dir.empty()) {
      place.directory = str_cat(options.log_dir, "/", plan.run_id, "/attempt_", plan.attempt, "/",
                                task.type, "_", task.index);
    }
    for (const int stream : {1, 2}) outputs_.emplace_back(stream, place, options);
  }
}

void TaskOutputs::write(std::size_t task, int stream, std::string_view bytes) {
  LineOutput& output = outputs_.at(2 * task + static_cast<std::size_t>(stream - 1));
  bytes.empty() ? output.finish() : output.write(bytes);
}

std::vector<std::string> TaskOutputs::tail(std::size_t task) const {
  const auto& errors = outputs_.at(2 * task + 1).tail();
  const auto& lines = errors.empty() ? outputs_.at(2 * task).tail() : errors;
  return {lines.begin(), lines.end()};
}

LocalNode::LocalNode(LocalSettings settings, int slots, OutputSink sink)
    : settings_(std::move(settings)),
      slots_(slots),
      sink_(std::move(sink)),
      group_(settings_.processes, [this](std::size_t task, int stream, std::string_view bytes) {
        sink_ ? sink_(task, stream, bytes) : outputs_->write(task, stream, bytes);
      }) {}

void LocalNode::prepare(std::size_t ports) {
  Event event{.kind = Event::Kind::kReady, .address = {.host = settings_.host}};
  if (settings_.port_base > 0) {
    for (std::size_t i = 0; i < ports; ++i) {
      event.address.ports.push_back(settings_.port_base + static_cast<int>(i));
    }
  } else {
    ports_ = std::make_unique<cohort::internal::base::ReservedPorts>(ports);
    event.address.ports = ports_->all();
  }
  events_.push_back(std::move(event));
}

// The store that this node keeps for the job: a new one for each attempt.
void LocalNode::start_store(const NodePlan& plan) {
  store_.reset();
  if (plan.node != 0 || plan.store_port == 0) return;
  // A name may stand for several addresses of this host, so beyond loopback it is found at all.
  std::string at = store_address(plan);
  if (!is_loopback(plan.master_addr)) {
    at = str_cat(plan.master_addr.front() == '[' ? "[::]:" : "0.0.0.0:", plan.store_port);
  }
  store_ = std::make_unique<cohort::internal::cluster::StoreProcess>(at, secrets_->security());
  ProcessGroup::is_no_ones(store_->pid());
}

ProcessSpec LocalNode::spec_of(const NodePlan& plan, std::size_t task) const {
  ProcessSpec spec{.environment = settings_.environment};
  for (const auto& more : {environment_of(plan, task), secrets_->environment()}) {
    spec.environment.insert(spec.environment.end(), more.begin(), more.end());
  }
  if (settings_.bind) {
    spec.cpus = cpus_of_tasks(plan.tasks.size(), settings_.cpus_per_task)[task];
  }
  return spec;
}

void LocalNode::start(const NodePlan& plan) {
  if (!sink_) outputs_ = std::make_unique<TaskOutputs>(plan, settings_.output);
  secrets_ = std::make_unique<SecretFiles>(plan.security);
  start_store(plan);
  plan_ = plan;
  std::vector<ProcessSpec> specs;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) specs.push_back(spec_of(plan, t));
  group_.start(specs);
}

void LocalNode::start_again(std::size_t task, int restarts) {
  if (task >= plan_.tasks.size()) return;
  NodePlan plan = plan_;
  plan.attempt += restarts;
  group_.start_again(task, spec_of(plan, task));
}

void LocalNode::finish(int) {
  store_.reset();
  secrets_.reset();
}

std::vector<Event> LocalNode::step() {
  for (const ProcessGroup::Ended& each : group_.step()) {
    Event event{.kind = Event::Kind::kEnded, .task = each.process, .status = each.status};
    if (outputs_) event.tail = outputs_->tail(each.process);
    events_.push_back(std::move(event));
  }
  return std::exchange(events_, {});
}

RemoteNode::RemoteNode(std::string name, int slots, const OutputOptions* output)
    : name_(std::move(name)), slots_(slots), output_options_(output) {}

RemoteNode::~RemoteNode() {
  channel_.reset();  // from which it knows that it is to end
  for (int i = 0; ssh_ > 0 && ::waitpid(ssh_, nullptr, WNOHANG) == 0; ++i) {
    if (i == kTriesForSsh) ::kill(ssh_, SIGKILL);
    ::poll(nullptr, 0, 20);
  }
}

void RemoteNode::attach(Channel channel, int slots, pid_t ssh) {
  channel_.emplace(std::move(channel));
  if (slots > 0) slots_ = slots;
  ssh_ = ssh;
  if (ssh > 0) channel_->skip_noise();
  was_there_ = true;
  is_paused_ = false;
}

void RemoteNode::send(Kind kind, const std::string& body) {
  if (is_there()) channel_->send(kind, body, kSendLimit);
}

void RemoteNode::prepare(std::size_t ports) { send(Kind::kPrepare, std::to_string(ports)); }

void RemoteNode::start(const NodePlan& plan) {
  if (output_options_ != nullptr) outputs_ = std::make_unique<TaskOutputs>(plan, *output_options_);
  send(Kind::kStart, to_json(plan));
}

void RemoteNode::start_again(std::size_t task, int restarts) {
  send(Kind::kAgain, json{{"task", task}, {"restarts", restarts}}.dump());
}

// One that shows its tasks' output itself waits for its own console.
void RemoteNode::pause(bool paused) {
  if (output_options_ == nullptr || paused == is_paused_) return;
  is_paused_ = paused;
  send(Kind::kPause, paused ? "1" : "0");
}

void RemoteNode::end(int signal) { send(Kind::kEnd, std::to_string(signal)); }

void RemoteNode::finish(int code) {
  is_over_ = true;
  send(Kind::kBye, std::to_string(code));
}

void RemoteNode::add_polled(std::vector<pollfd>* polled) const {
  if (is_there()) polled->push_back({.fd = channel_->fd(), .events = POLLIN, .revents = 0});
}

// "3 1", a new line, and what stream 1 of task 3 has written.
void RemoteNode::take_output(const std::string& body) {
  const std::size_t end = body.find('\n');
  const std::size_t space = body.find(' ');
  if (!outputs_ || end == std::string::npos || space > end) return;
  const std::string_view text = body;
  const int task = number_in(text.substr(0, space), -1);
  const int stream = number_in(text.substr(space + 1, end - space - 1), 0);
  if (task < 0 || (stream != 1 && stream != 2)) return;
  outputs_->write(static_cast<std::size_t>(task), stream, text.substr(end + 1));
}

void RemoteNode::take(const Message& message, std::vector<Event>* events) {
  switch (message.kind) {
    case Kind::kReady:
      events->push_back(event_from_json(Event::Kind::kReady, message.body));
      break;
    case Kind::kEnded:
      events->push_back(event_from_json(Event::Kind::kEnded, message.body));
      if (outputs_) events->back().tail = outputs_->tail(events->back().task);
      break;
    case Kind::kOutput:
      take_output(message.body);
      break;
    case Kind::kBroken:
      events->push_back({.kind = Event::Kind::kLost, .why = message.body});
      was_there_ = false;
      channel_->close();
      break;
    default:
      break;
  }
}

std::vector<Event> RemoteNode::step() {
  std::vector<Event> events;
  if (!channel_) return events;
  try {
    channel_->read();
    while (const auto message = channel_->next()) take(*message, &events);
  } catch (const std::exception& e) {
    events.push_back({.kind = Event::Kind::kLost, .why = e.what()});
    was_there_ = false;
    channel_->close();
  }
  if (was_there_ && !is_there() && !is_over_) {
    events.push_back(
        {.kind = Event::Kind::kLost, .why = "the connection to its cohortrun was closed"});
    was_there_ = false;
  }
  return events;
}

SshConnection connect_by_ssh(const std::vector<std::string>& ssh, const std::string& host,
                             const std::string& program) {
  std::array<int, 2> in = {};
  std::array<int, 2> out = {};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error(str_cat("expected a pipe, got: ", std::strerror(errno)));
  }
  std::vector<std::string> words = ssh;
  for (const char* flag : {"-T", "-o", "BatchMode=yes"}) words.emplace_back(flag);
  words.push_back(host);
  words.push_back(str_cat("exec '", program, "' --agent"));
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);  // Ctrl-C is cohortrun's to pass on
    Signals::unblock();
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "cohortrun: cannot start %s: %s\n", arguments[0], std::strerror(errno));
    std::fflush(stderr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  if (pid < 0) throw std::runtime_error(str_cat("expected a process for ssh to ", host));
  ProcessGroup::is_no_ones(pid);
  return {.channel = Channel(out[0], in[1]), .process = pid};
}

}  // namespace cohortrun
