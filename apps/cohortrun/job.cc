// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

// All are held until the last one is known, so that none comes twice.
std::vector<int> free_ports(std::size_t count) {
  std::vector<int> ports;
  std::vector<int> held;
  for (std::size_t i = 0; i < count; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* generic = reinterpret_cast<sockaddr*>(&at);
    if (fd >= 0) held.push_back(fd);
    if (fd < 0 || ::bind(fd, generic, size) != 0 || ::getsockname(fd, generic, &size) != 0) break;
    ports.push_back(ntohs(at.sin_port));
  }
  const int error = errno;
  for (const int fd : held) ::close(fd);
  if (ports.size() < count) {
    throw std::runtime_error(
        str_cat("expected ", count, " free ports on loopback, got: ", std::strerror(error)));
  }
  return ports;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void share_cpus_out(const JobOptions& options, std::vector<Task>& tasks) {
  const std::vector<int> cpus = allowed_cpus();
  std::size_t each = cpus.size() / tasks.size();
  if (options.cpus_per_task > 0) {
    const auto wanted = static_cast<std::size_t>(options.cpus_per_task);
    if (wanted > each) {
      throw std::runtime_error(str_cat("expected at least ", wanted * tasks.size(), " cores for ",
                                       tasks.size(), " tasks with ", wanted, " each, got ",
                                       cpus.size()));
    }
    each = wanted;
  }
  // Fewer cores than tasks: the system shares them out better than a binding could.
  for (std::size_t i = 0; i < tasks.size() && options.bind; ++i) {
    const auto first = cpus.begin() + static_cast<std::ptrdiff_t>(i * each);
    tasks[i].cpus.assign(first, first + static_cast<std::ptrdiff_t>(each));
  }
}

// The cluster as TF_CONFIG has it.
std::string cluster_text(const std::vector<Task>& tasks, const std::vector<int>& ports) {
  std::string text;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool first = i == 0 || tasks[i - 1].type != tasks[i].type;
    if (first) text += str_cat(i == 0 ? "" : "], ", "\"", tasks[i].type, "\": [");
    text += str_cat(first ? "" : ", ", "\"localhost:", ports[i], "\"");
  }
  return str_cat("{", text, "]}");
}

}  // namespace

std::vector<Task> plan_job(const JobOptions& options) {
  std::vector<Task> tasks;
  if (options.chief) tasks.push_back({.type = "chief"});
  for (int w = 0; w < options.workers; ++w) tasks.push_back({.type = "worker", .index = w});
  if (options.evaluator) tasks.push_back({.type = "evaluator"});
  if (tasks.empty()) throw std::runtime_error("expected at least 1 worker or a chief, got none");

  std::vector<int> ports;
  if (options.port_base > 0) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      ports.push_back(options.port_base + static_cast<int>(i));
    }
  } else {
    ports = free_ports(tasks.size());
  }
  const std::string cluster = cluster_text(tasks, ports);
  // Ranks are those of the workers, the chief first; an evaluator has none.
  const std::size_t ranks = tasks.size() - (options.evaluator ? 1 : 0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Task& task = tasks[i];
    task.environment = {str_cat("TF_CONFIG={\"cluster\": ", cluster, ", \"task\": {\"type\": \"",
                                task.type, "\", \"index\": ", task.index, "}}")};
    if (i >= ranks) continue;
    for (const char* rank : {"RANK=", "LOCAL_RANK="}) task.environment.push_back(str_cat(rank, i));
    for (const char* size : {"WORLD_SIZE=", "LOCAL_WORLD_SIZE="}) {
      task.environment.push_back(str_cat(size, ranks));
    }
  }
  share_cpus_out(options, tasks);
  return tasks;
}

}  // namespace cohortrun
