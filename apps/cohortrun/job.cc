// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using nlohmann::json;

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

// The cluster as TF_CONFIG has it: the jobs in the order of their first tasks.
std::string cluster_text(const std::vector<std::vector<Task>>& nodes,
                         const std::vector<NodeAddress>& addresses) {
  std::vector<std::string> order;
  std::map<std::string, std::string> jobs;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (std::size_t t = 0; t < nodes[n].size(); ++t) {
      std::string& job = jobs[nodes[n][t].type];
      if (job.empty()) order.push_back(nodes[n][t].type);
      job += str_cat(job.empty() ? "" : ", ",
                     json(str_cat(addresses[n].host, ":", addresses[n].ports[t])).dump());
    }
  }
  std::vector<std::string> texts;
  for (const std::string& type : order) {
    texts.push_back(str_cat("\"", type, "\": [", jobs[type], "]"));
  }
  return str_cat("{", cohort::join(texts, ", "), "}");
}

}  // namespace

std::vector<Task> tasks_of(const TaskCounts& counts) {
  std::vector<Task> tasks;
  int rank = 0;
  if (counts.chief) tasks.push_back({.type = "chief", .rank = rank++});
  for (int w = 0; w < counts.workers; ++w) {
    tasks.push_back({.type = "worker", .index = w, .rank = rank++});
  }
  if (rank == 0) throw std::runtime_error("expected at least 1 worker or a chief, got none");
  for (int p = 0; p < counts.ps; ++p) tasks.push_back({.type = "ps", .index = p});
  if (counts.evaluator) tasks.push_back({.type = "evaluator"});
  return tasks;
}

std::vector<std::vector<Task>> place(const std::vector<Task>& tasks,
                                     const std::vector<int>& slots) {
  std::vector<std::vector<Task>> nodes(slots.size());
  std::size_t node = 0;
  for (const Task& task : tasks) {
    while (node < slots.size() && static_cast<int>(nodes[node].size()) >= slots[node]) ++node;
    if (node == slots.size()) {
      int all = 0;
      for (const int each : slots) all += each;
      throw std::runtime_error(str_cat("expected at least ", tasks.size(), " slots for as many ",
                                       "tasks, got ", all, " on ", slots.size(), " hosts"));
    }
    nodes[node].push_back(task);
  }
  std::erase_if(nodes, [](const std::vector<Task>& each) { return each.empty(); });
  return nodes;
}

std::vector<NodePlan> plans_of(const NodePlan& common, const SecuritySettings& security,
                               const std::vector<std::vector<Task>>& tasks_of_nodes,
                               const std::vector<NodeAddress>& addresses) {
  NodePlan plan = common;
  plan.cluster = cluster_text(tasks_of_nodes, addresses);
  plan.nodes = static_cast<int>(tasks_of_nodes.size());
  plan.world_size = 0;
  for (const auto& tasks : tasks_of_nodes) {
    plan.world_size += static_cast<int>(
        std::count_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.rank >= 0; }));
  }
  plan.master_addr = addresses.front().host;
  std::size_t tasks_in_all = 0;
  for (const auto& tasks : tasks_of_nodes) tasks_in_all += tasks.size();
  const std::vector<int>& ports = addresses.front().ports;
  plan.master_port = ports[ports.size() - kMorePorts];
  // One task alone has nobody to agree with; and a user may keep a store.
  if (tasks_in_all > 1 && std::getenv(cohort::internal::cluster::kStoreVariable) == nullptr) {
    plan.store_port = ports.back();
  }
  std::vector<std::string> hosts;
  for (const NodeAddress& each : addresses) hosts.push_back(each.host);
  const auto secrets = security_of_nodes(security, common.run_id, common.attempt, hosts);
  std::vector<NodePlan> plans(tasks_of_nodes.size(), plan);
  for (std::size_t n = 0; n < plans.size(); ++n) {
    plans[n].node = static_cast<int>(n);
    plans[n].tasks = tasks_of_nodes[n];
    plans[n].security = secrets[n];
  }
  return plans;
}

std::string store_address(const NodePlan& plan) {
  if (plan.store_port == 0) return {};
  // By the name that the node's certificate is for.
  return str_cat(plan.master_addr, ":", plan.store_port);
}

std::string to_json(const NodePlan& plan) {
  const TaskSecurity& s = plan.security;
  json tasks = json::array();
  for (const Task& each : plan.tasks) tasks.push_back({each.type, each.index, each.rank});
  return json{{"run_id", plan.run_id},
              {"attempt", plan.attempt},
              {"max_restarts", plan.max_restarts},
              {"cluster", plan.cluster},
              {"tasks", tasks},
              {"world_size", plan.world_size},
              {"node", plan.node},
              {"nodes", plan.nodes},
              {"master_addr", plan.master_addr},
              {"master_port", plan.master_port},
              {"store_port", plan.store_port},
              {"security", {s.job, s.token, s.certificate, s.key, s.authority}},
              {"allow_insecure", s.allow_insecure}}
      .dump();
}

NodePlan plan_from_json(const std::string& text) {
  try {
    const json parsed = json::parse(text);
    NodePlan plan{.run_id = parsed.at("run_id"),
                  .attempt = parsed.at("attempt"),
                  .max_restarts = parsed.at("max_restarts"),
                  .cluster = parsed.at("cluster"),
                  .world_size = parsed.at("world_size"),
                  .node = parsed.at("node"),
                  .nodes = parsed.at("nodes"),
                  .master_addr = parsed.at("master_addr"),
                  .master_port = parsed.at("master_port"),
                  .store_port = parsed.at("store_port")};
    const json& s = parsed.at("security");
    plan.security = {.job = s.at(0),
                     .token = s.at(1),
                     .certificate = s.at(2),
                     .key = s.at(3),
                     .authority = s.at(4),
                     .allow_insecure = parsed.at("allow_insecure")};
    for (const json& each : parsed.at("tasks")) {
      plan.tasks.push_back({.type = each.at(0), .index = each.at(1), .rank = each.at(2)});
    }
    return plan;
  } catch (const json::exception& e) {
    throw std::runtime_error(str_cat("expected a plan, got: ", e.what()));
  }
}

std::vector<std::string> environment_of(const NodePlan& plan, std::size_t task) {
  const Task& own = plan.tasks.at(task);
  int local_size = 0;
  int local_rank = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    if (plan.tasks[t].rank < 0) continue;
    if (t < task) ++local_rank;
    ++local_size;
  }
  std::vector<std::string> out = {
      str_cat("TF_CONFIG={\"cluster\": ", plan.cluster, ", \"task\": {\"type\": \"", own.type,
              "\", \"index\": ", own.index, "}}"),
      str_cat("COHORT_RUN_ID=", plan.run_id), str_cat("COHORT_RESTART_COUNT=", plan.attempt)};
  if (plan.store_port > 0) {
    out.push_back(str_cat(cohort::internal::cluster::kStoreVariable, "=", store_address(plan)));
  }
  const std::vector<std::pair<const char*, std::string>> ranks = {
      {"RANK", std::to_string(own.rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(plan.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(local_size)},
      {"GROUP_RANK", std::to_string(plan.node)},
      {"GROUP_WORLD_SIZE", std::to_string(plan.nodes)},
      {"ROLE_RANK", std::to_string(own.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(plan.world_size)},
      {"MASTER_ADDR", plan.master_addr},
      {"MASTER_PORT", std::to_string(plan.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(plan.attempt)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(plan.max_restarts)},
      {"TORCHELASTIC_RUN_ID", plan.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  for (const auto& [name, value] : ranks) {
    out.push_back(own.rank < 0 ? std::string(name) : str_cat(name, "=", value));
  }
  if (own.rank < 0) out.emplace_back("ROLE_NAME");  // else as --role says
  return out;
}

std::vector<std::vector<int>> cpus_of_tasks(std::size_t tasks, int wanted_each) {
  const std::vector<int> cpus = allowed_cpus();
  std::size_t each = cpus.size() / tasks;
  const auto wanted = static_cast<std::size_t>(wanted_each);
  if (wanted > each) {
    throw std::runtime_error(str_cat("expected at least ", wanted * tasks, " cores for ", tasks,
                                     " tasks with ", wanted, " each, got ", cpus.size()));
  }
  if (wanted > 0) each = wanted;
  std::vector<std::vector<int>> out(tasks);
  for (std::size_t i = 0; i < tasks; ++i) {
    const auto first = cpus.begin() + static_cast<std::ptrdiff_t>(i * each);
    out[i].assign(first, first + static_cast<std::ptrdiff_t>(each));
  }
  return out;
}

}  // namespace cohortrun
