// SPDX-License-Identifier: Apache-2.0
#include "agent.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using nlohmann::json;

constexpr int kHungUp = 128 + SIGHUP;
// The head may be waiting for its own console, as long as it likes: who waits for it writes
// nothing.
constexpr std::chrono::hours kOutputLimit{24 * 365};
constexpr std::chrono::milliseconds kBetweenTries{200};

int number_of(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

class Agent {
 public:
  Agent(Channel channel, const LocalSettings& settings, int slots, bool passes_output_on,
        Signals& signals)
      : channel_(std::move(channel)),
        signals_(signals),
        node_(settings, slots, passes_output_on ? output_sink() : OutputSink{}) {}
  int run();

 private:
  OutputSink output_sink() {
    return [this](std::size_t task, int stream, std::string_view bytes) {
      channel_.send(Kind::kOutput, str_cat(task, " ", stream, "\n", bytes), kOutputLimit);
    };
  }
  void wait_for_something();
  void take(const Message& message);
  void start_again(const std::string& text);
  void tell(const Event& event);
  void say_that_the_head_is_gone() const;
  bool is_over() const { return code_.has_value() && !node_.any_alive() && !node_.any_left(); }

  Channel channel_;
  Signals& signals_;
  LocalNode node_;
  bool was_let_in_ = false;
  bool is_told_to_wait_ = false;
  std::optional<int> code_;
};

void Agent::wait_for_something() {
  std::vector<pollfd> polled = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  if (channel_.is_open()) polled.push_back({.fd = channel_.fd(), .events = POLLIN, .revents = 0});
  node_.add_polled(&polled);
  Console::add_polled(&polled);
  int timeout = -1;
  if (const auto next = node_.next_deadline()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  ::poll(polled.data(), polled.size(), timeout);
}

void Agent::take(const Message& message) {
  switch (message.kind) {
    case Kind::kPrepare:
      node_.prepare(static_cast<std::size_t>(std::clamp(number_of(message.body), 0, 20'000)));
      break;
    case Kind::kStart:
      if (!code_ && !node_.any_alive()) node_.start(plan_from_json(message.body));
      break;
    case Kind::kAgain:
      start_again(message.body);
      break;
    case Kind::kPause:
      is_told_to_wait_ = message.body == "1";
      break;
    case Kind::kEnd:
      node_.end(std::clamp(number_of(message.body), 1, 64));
      break;
    case Kind::kBye:
      code_ = number_of(message.body);
      node_.end(SIGTERM);
      break;
    case Kind::kRefuse:
      std::fprintf(stderr, "cohortrun: the head has refused this node: %s\n", message.body.c_str());
      code_ = 1;
      break;
    default:
      break;
  }
}

void Agent::start_again(const std::string& text) {
  try {
    const json asked = json::parse(text);
    if (!code_) node_.start_again(asked.at("task"), asked.at("restarts"));
  } catch (const json::exception& e) {
    throw std::runtime_error(str_cat("expected a task to start again, got: ", e.what()));
  }
}

void Agent::tell(const Event& event) {
  const Kind kind = event.kind == Event::Kind::kReady ? Kind::kReady : Kind::kEnded;
  channel_.send(kind, event_to_json(event), kOutputLimit);
}

void Agent::say_that_the_head_is_gone() const {
  if (was_let_in_) {
    std::fprintf(stderr, "cohortrun: the head of the job is gone; its tasks here are ended\n");
    return;
  }
  std::fprintf(stderr,
               "cohortrun: the head has not let this node in%s%s: all nodes of a job need the same "
               "secret (COHORT_JOB_TOKEN_FILE, COHORT_JOB_TOKEN), or none; or it has ended\n",
               channel_.why().empty() ? "" : ": ", channel_.why().c_str());
}

int Agent::run() {
  try {
    // Some messages may have come with the first one.
    for (; !is_over(); wait_for_something()) {
      while (const auto signal = signals_.next()) {
        if (!code_) code_ = 128 + *signal;
        node_.end(*signal);
      }
      channel_.read();
      while (const auto message = channel_.next()) {
        was_let_in_ = true;
        take(*message);
      }
      Console::flush();
      node_.pause(is_told_to_wait_ || Console::any_is_full());
      for (const Event& event : node_.step()) tell(event);
      if (!channel_.is_open() && !code_) {
        code_ = kHungUp;
        say_that_the_head_is_gone();
        node_.end(SIGTERM);
      }
      if (is_over()) break;
    }
    bool was_asked = false;
    Console::finish(signals_.fd(), [&] { return was_asked |= signals_.next().has_value(); });
  } catch (const std::exception& e) {
    channel_.send(Kind::kBroken, e.what(), std::chrono::seconds(1));
    throw;
  }
  return *code_;
}

// Waits so long, or until a signal asks to end, which it returns.
int wait_or_signal(std::chrono::milliseconds time, int socket, Signals& signals) {
  const auto until = Clock::now() + time;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return 0;
    std::vector<pollfd> polled = {{.fd = signals.fd(), .events = POLLIN, .revents = 0}};
    if (socket >= 0) polled.push_back({.fd = socket, .events = POLLOUT, .revents = 0});
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (const auto signal = signals.next()) return *signal;
    if (socket >= 0 && polled[1].revents != 0) return 0;
  }
}

std::string own_address_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return address_text(address);
}

}  // namespace

int follow_head(Channel channel, const LocalSettings& settings, int slots, bool passes_output_on,
                Signals& signals) {
  return Agent(std::move(channel), settings, slots, passes_output_on, signals).run();
}

std::optional<Channel> find_head(const Endpoint& at, const cohort::internal::rpc::TlsContext& tls,
                                 std::chrono::seconds limit, Signals& signals, int* signal,
                                 std::string* own_address) {
  const auto until = Clock::now() + limit;
  while (Clock::now() < until) {
    const int socket = begin_to_connect(at);
    if (socket >= 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      *signal = wait_or_signal(std::min<std::chrono::milliseconds>(left, std::chrono::seconds(5)),
                               socket, signals);
      if (*signal == 0 && has_connected(socket)) {
        notice_silence(socket);
        *own_address = own_address_of(socket);
        return Channel(socket, tls, cohort::internal::rpc::TlsSide::kClient, at.host);
      }
      ::close(socket);
    }
    if (*signal == 0) *signal = wait_or_signal(kBetweenTries, -1, signals);
    if (*signal != 0) return {};
  }
  return {};
}

std::string job_to_json(const LocalSettings& settings) {
  return json{{"command", settings.processes.command},
              {"directory", settings.processes.directory},
              {"grace", settings.processes.grace.count()},
              {"environment", settings.environment},
              {"host", settings.host},
              {"port_base", settings.port_base},
              {"cpus_per_task", settings.cpus_per_task},
              {"bind", settings.bind}}
      .dump();
}

int follow_over_ssh(Signals& signals) {
  Channel channel(::dup(STDIN_FILENO), ::dup(STDOUT_FILENO));
  // Nothing else may come between the messages.
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  std::optional<Message> message;
  while (!message) {
    std::vector<pollfd> polled = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = channel.fd(), .events = POLLIN, .revents = 0}};
    ::poll(polled.data(), polled.size(), -1);
    if (const auto signal = signals.next()) return 128 + *signal;
    channel.read();
    message = channel.next();
    if (!message && !channel.is_open()) return kHungUp;
  }
  LocalSettings settings;
  try {
    const json job = json::parse(message->body);
    settings.processes = {.command = job.at("command"),
                          .directory = job.at("directory"),
                          .grace = std::chrono::seconds(job.at("grace").get<int>()),
                          .no_input = true};
    settings.environment = job.at("environment").get<std::vector<std::string>>();
    settings.host = job.at("host").get<std::string>();
    settings.port_base = job.at("port_base").get<int>();
    settings.cpus_per_task = job.at("cpus_per_task").get<int>();
    settings.bind = job.at("bind").get<bool>();
  } catch (const json::exception& e) {
    throw std::runtime_error(
        str_cat("--agent is for the cohortrun of another host, whose message "
                "was expected, got: ",
                e.what()));
  }
  // For what this process itself asks of it: the files of certificates that the user has.
  for (const std::string& each : settings.environment) {
    const std::size_t equals = each.find('=');
    if (each.rfind("COHORT_", 0) != 0 || equals == std::string::npos) continue;
    ::setenv(each.substr(0, equals).c_str(), each.c_str() + equals + 1, 1);
  }
  return follow_head(std::move(channel), settings, 0, true, signals);
}

}  // namespace cohortrun
