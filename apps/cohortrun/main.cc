// SPDX-License-Identifier: Apache-2.0
//
// Starts a program in several processes of one or more hosts, which train together:
//
//   cohortrun --workers 2 -- ./multi_worker_mnist --epochs 3
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "agent.h"
#include "cohort/base/strings.h"
#include "coordinator.h"
#include "network.h"
#include "options.h"

namespace {

using namespace cohortrun;
using cohort::str_cat;

// No two jobs have the same, nor two of one name.
std::string new_run_id(const std::string& job) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id = job + "_";
  for (int i = 0; i < 8; ++i) id += kDigits[random() % 16];
  return id;
}

// All on this host.
int run_here(Options o, Signals& signals) {
  o.settings.tasks = {tasks_of(o.tasks)};
  if (!o.local_addr.empty()) o.local.host = o.local_addr;
  cpus_of_tasks(o.settings.tasks[0].size(), o.local.cpus_per_task);  // says what is not there
  std::vector<std::unique_ptr<Node>> nodes;
  nodes.push_back(std::make_unique<LocalNode>(o.local, 0));
  return lead_job(o.settings, std::move(nodes), nullptr, signals);
}

// What the others call this host.
std::string reachable_name(const Options& o, const Host& host, bool others) {
  if (!is_this_host(host.address()) || !others) return host.address();
  if (!o.local_addr.empty()) return o.local_addr;
  return is_loopback(host.address()) ? own_host_name() : host.address();
}

// On the hosts of a list.
int run_on_hosts(Options o, Signals& signals) {
  std::vector<int> slots;
  int all = 0;
  for (Host& host : o.hosts) {
    if (o.nproc_per_node > 0) host.slots = o.nproc_per_node;
    slots.push_back(host.slots);
    all += host.slots;
  }
  if (o.tasks.workers == 0 && !o.tasks.chief) {
    o.tasks.workers = all - o.tasks.ps - (o.tasks.evaluator ? 1 : 0);
  }
  o.settings.tasks = place(tasks_of(o.tasks), slots);
  bool others = false;
  for (std::size_t n = 0; n < o.settings.tasks.size(); ++n) {
    others = others || !is_this_host(o.hosts[n].address());
  }
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t n = 0; n < o.settings.tasks.size(); ++n) {
    LocalSettings local = o.local;
    local.host = reachable_name(o, o.hosts[n], others);
    if (is_this_host(o.hosts[n].address())) {
      nodes.push_back(std::make_unique<LocalNode>(std::move(local), 0));
      continue;
    }
    local.processes.directory = std::filesystem::current_path().string();
    SshConnection connection = connect_by_ssh(o.ssh, o.hosts[n].name, o.remote_program);
    auto node = std::make_unique<RemoteNode>(o.hosts[n].name, 0, &o.local.output);
    node->attach(std::move(connection.channel), 0, connection.process);
    node->send(Kind::kJob, job_to_json(local));
    nodes.push_back(std::move(node));
  }
  return lead_job(o.settings, std::move(nodes), nullptr, signals);
}

int run_as_head(Options o, int listening, const Endpoint& at, Signals& signals) {
  o.local.host = o.local_addr.empty() ? at.host : o.local_addr;
  Door door(listening, o.job, o.nodes, tls_between_nodes(o.settings.security.own));
  std::vector<std::unique_ptr<Node>> nodes;
  nodes.push_back(std::make_unique<LocalNode>(o.local, o.nproc_per_node));
  for (int n = 1; n < o.nodes; ++n) {
    nodes.push_back(std::make_unique<RemoteNode>(str_cat("node ", n), 0, nullptr));
  }
  return lead_job(o.settings, std::move(nodes), &door, signals);
}

int run_as_follower(Options o, const Endpoint& at, Signals& signals) {
  int signal = 0;
  std::string own_address;
  auto channel = find_head(at, tls_between_nodes(o.settings.security.own), o.settings.nodes_timeout,
                           signals, &signal, &own_address);
  if (signal != 0) return 128 + signal;
  if (!channel) {
    throw std::runtime_error(str_cat("expected the first node's cohortrun at ", o.endpoint,
                                     " (--rdzv-endpoint) within ", o.settings.nodes_timeout.count(),
                                     " s, got nobody"));
  }
  o.local.host = o.local_addr.empty() ? own_address : o.local_addr;
  channel->send(
      Kind::kHello,
      to_json(Hello{
          .job = o.job, .node_rank = o.node_rank, .slots = o.nproc_per_node, .nodes = o.nodes}),
      std::chrono::seconds(5));
  return follow_head(std::move(*channel), o.local, o.nproc_per_node, false, signals);
}

// The name of a pod is known a moment after its start.
int listen_in_time(const Options& o, const Endpoint& at, Signals& signals, int* signal) {
  const auto until = Clock::now() + o.settings.nodes_timeout;
  for (;;) {
    const int listening = listen_at(at);
    if (listening != kNameNotKnown || Clock::now() >= until) return listening;
    pollfd polled{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    ::poll(&polled, 1, 500);
    *signal = signals.next().value_or(0);
    if (*signal != 0) return -1;
  }
}

// On each of several hosts somebody has started cohortrun.
int run_among_nodes(const Options& o, Signals& signals) {
  const Endpoint at = endpoint_of(o.endpoint, 0, "--rdzv-endpoint");
  int signal = 0;
  const int listening = o.node_rank <= 0 ? listen_in_time(o, at, signals, &signal) : -1;
  if (signal != 0) return 128 + signal;
  if (listening >= 0) return run_as_head(o, listening, at, signals);
  if (o.node_rank == 0) {
    throw std::runtime_error(str_cat("expected node 0 to listen at ", o.endpoint,
                                     " (--rdzv-endpoint): it is no address of this host, or "
                                     "somebody listens there already"));
  }
  return run_as_follower(o, at, signals);
}

// Those that are closed (>&-): what is opened next would get their numbers, and all that is written
// there.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

int run(int argc, char** argv) {
  open_standard_streams();
  int exit_code = 0;
  std::optional<Options> options = read_options(argc, argv, &exit_code);
  if (!options) return exit_code;
  // Secrets are in no core file and no debugger's; and what tasks leave behind is this process's.
  ::prctl(PR_SET_DUMPABLE, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Signals signals;
  if (options->is_agent) return follow_over_ssh(signals);
  options->settings.run_id = new_run_id(options->job);
  if (!options->hosts.empty()) return run_on_hosts(std::move(*options), signals);
  if (options->nodes > 1) return run_among_nodes(*options, signals);
  return run_here(std::move(*options), signals);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    Console::flush();
    std::fprintf(stderr, "cohortrun: %s\n", e.what());
    return 1;
  }
}
