// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/base/strings.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/internal/variables.h"

namespace cohort {
namespace internal::cluster {
namespace {

constexpr int kMostTasks = 100'000;
constexpr const char* kSlurmHint = "Not running inside a SLURM step?";

[[noreturn]] void bad_list(const char* what, const std::string& text, const std::string& why) {
  throw InvalidArgument(str_cat("[slurm] Invalid ", what, " format \"", text, "\": ", why));
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// At the commas outside of brackets.
std::vector<std::string> split_hosts(const std::string& text) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char c : text) {
    if (c == '[' || c == ']') {
      if ((c == '[') == inside) bad_list("hostlist", text, "brackets do not pair");
      inside = c == '[';
    }
    if (c == ',' && !inside) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (inside) bad_list("hostlist", text, "brackets do not pair");
  return parts;
}

// "01-03" after its prefix, as many digits as the first number has.
void expand_range(const std::string& text, const std::string& prefix, const std::string& range,
                  std::vector<std::string>* hosts) {
  const std::vector<std::string> ends = split_at(range, '-');
  const auto is_number = [](const std::string& end) {
    return !end.empty() && end.size() < 9 &&
           end.find_first_not_of("0123456789") == std::string::npos;
  };
  if (ends.size() > 2 || !std::all_of(ends.begin(), ends.end(), is_number)) {
    bad_list("hostlist", text, str_cat("\"", range, "\" is no range of numbers"));
  }
  const int first = std::stoi(ends.front());
  const int last = std::stoi(ends.back());
  if (last < first || last - first >= kMostTasks) {
    bad_list("hostlist", text, str_cat("\"", range, "\" is no range of numbers"));
  }
  for (int i = first; i <= last; ++i) {
    std::string number = std::to_string(i);
    const std::size_t digits = std::max(ends.front().size(), number.size());
    hosts->push_back(str_cat(prefix, std::string(digits - number.size(), '0'), number));
  }
}

}  // namespace

std::vector<std::string> expand_hostlist(const std::string& text) {
  std::vector<std::string> hosts;
  for (const std::string& part : split_hosts(text)) {
    const std::size_t open = part.find('[');
    if (part.empty() || (open != std::string::npos && part.back() != ']')) {
      bad_list("hostlist", text, str_cat("Invalid part: ", part));
    }
    if (open == std::string::npos) {
      hosts.push_back(part);
      continue;
    }
    const std::string ranges = part.substr(open + 1, part.size() - open - 2);
    for (const std::string& range : split_at(ranges, ',')) {
      expand_range(text, part.substr(0, open), range, &hosts);
    }
  }
  return hosts;
}

std::vector<int> expand_tasks_per_node(const std::string& text) {
  constexpr const char* kWhat = "tasks-per-node list";
  std::vector<int> out;
  for (const std::string& part : split_at(text, ',')) {
    const std::size_t open = part.find("(x");
    const bool repeated = open != std::string::npos;
    std::string count = part.substr(0, open);
    std::string times = repeated ? part.substr(open + 2) : "1)";
    if (times.empty() || times.back() != ')')
      bad_list(kWhat, text, str_cat("Invalid part: ", part));
    times.pop_back();
    for (const std::string& number : {count, times}) {
      if (number.empty() || number.size() > 6 ||
          number.find_first_not_of("0123456789") != std::string::npos) {
        bad_list(kWhat, text, str_cat("Invalid part: ", part));
      }
    }
    if (static_cast<int>(out.size()) + std::stoi(times) > kMostTasks) {
      bad_list(kWhat, text, "too many nodes");
    }
    out.insert(out.end(), static_cast<std::size_t>(std::stoi(times)), std::stoi(count));
  }
  return out;
}

namespace {

int slurm_number(const char* name) {
  return whole_number(name, needed_variable(name, kSlurmHint), 0);
}

// Tasks of each host, in the order of the ranks.
std::vector<std::pair<std::string, int>> tasks_of_hosts(const SlurmOptions& options) {
  std::vector<std::pair<std::string, int>> out;
  const auto hosts = expand_hostlist(needed_variable("SLURM_STEP_NODELIST", kSlurmHint));
  if (!options.tasks_per_node.empty()) {
    for (const std::string& host : hosts) {
      const auto found = options.tasks_per_node.find(host);
      COHORT_CHECK_ARG(found != options.tasks_per_node.end(),
                       "[slurm] expected tasks_per_node of all nodes of SLURM_STEP_NODELIST, got ",
                       "none of ", host);
      out.emplace_back(host, found->second);
    }
    return out;
  }
  const auto counts =
      expand_tasks_per_node(needed_variable("SLURM_STEP_TASKS_PER_NODE", kSlurmHint));
  COHORT_CHECK_ARG(hosts.size() == counts.size(), "[slurm] expected as many nodes in ",
                   "SLURM_STEP_NODELIST as in SLURM_STEP_TASKS_PER_NODE, got ", hosts.size(),
                   " and ", counts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) out.emplace_back(hosts[i], counts[i]);
  return out;
}

// Ranks are handed out node after node, or one to each node in turn.
bool is_cyclic() {
  const std::string text = job_variable("SLURM_DISTRIBUTION").value_or("block");
  const std::string over_nodes = text.substr(0, text.find_first_of(":,"));
  if (over_nodes == "cyclic") return true;
  if (over_nodes == "block" || over_nodes == "*" || over_nodes == "unknown") return false;
  throw Unimplemented(str_cat("[slurm] expected ranks handed out blockwise or cyclically (srun ",
                              "--distribution), got SLURM_DISTRIBUTION=", text));
}

struct SlurmPlace {
  std::string host = {};
  int local = 0;  // which task of its node
};

// Of each rank.
std::vector<SlurmPlace> places_of(const std::vector<std::pair<std::string, int>>& hosts) {
  std::vector<SlurmPlace> places;
  if (!is_cyclic()) {
    for (const auto& [host, tasks] : hosts) {
      for (int i = 0; i < tasks; ++i) places.push_back({host, i});
    }
    return places;
  }
  std::size_t all = 0;
  for (const auto& [host, tasks] : hosts) all += static_cast<std::size_t>(tasks);
  for (int i = 0; places.size() < all; ++i) {
    for (const auto& [host, tasks] : hosts) {
      if (i < tasks) places.push_back({host, i});
    }
  }
  return places;
}

int gpus_of_node(const SlurmOptions& options) {
  if (options.gpus_per_node) return *options.gpus_per_node;
  const auto visible = job_variable("CUDA_VISIBLE_DEVICES");
  return visible ? static_cast<int>(split_at(*visible, ',').size()) : 0;
}

void show_own_gpus(int local_task, int gpus_per_task) {
  std::vector<std::string> gpus;
  for (int i = 0; i < gpus_per_task; ++i) {
    gpus.push_back(std::to_string(local_task * gpus_per_task + i));
  }
  ::setenv("CUDA_VISIBLE_DEVICES", join(gpus, ",").c_str(), /*overwrite=*/1);
}

}  // namespace
}  // namespace internal::cluster

SlurmClusterResolver::SlurmClusterResolver(SlurmOptions options)
    : ClusterResolver({.rpc_layer = options.rpc_layer}) {
  const int rank = internal::cluster::slurm_number("SLURM_PROCID");
  if (options.jobs.empty()) {
    options.jobs = {{"worker", internal::cluster::slurm_number("SLURM_STEP_NUM_TASKS")}};
  }
  const auto hosts = internal::cluster::tasks_of_hosts(options);
  int most = 0;
  std::vector<std::string> addresses;
  std::vector<int> local;
  for (const auto& [host, tasks] : hosts) most = std::max(most, tasks);
  for (const internal::cluster::SlurmPlace& place : internal::cluster::places_of(hosts)) {
    addresses.push_back(str_cat(place.host, ":", options.port_base + place.local));
    local.push_back(place.local);
  }
  int requested = 0;
  for (const auto& [job, tasks] : options.jobs) requested += tasks;
  COHORT_CHECK_STATE(requested == static_cast<int>(addresses.size()), "[slurm] Requested ",
                     requested, " tasks but only ", addresses.size(), " were assigned.");
  COHORT_CHECK_STATE(rank < requested, "[slurm] expected SLURM_PROCID to be one of ", requested,
                     " tasks, got ", rank);
  const int gpus = internal::cluster::gpus_of_node(options);
  gpus_per_task_ = options.gpus_per_task.value_or(most > 0 ? gpus / most : 0);
  COHORT_CHECK_STATE(most * gpus_per_task_ <= gpus,
                     "[slurm] Requested more GPUs per node than available: ", most, " tasks of ",
                     gpus_per_task_, " each on a node with ", gpus);
  auto next = addresses.begin();
  for (const auto& [job, tasks] : options.jobs) {
    const auto first = static_cast<int>(next - addresses.begin());
    jobs_[job].assign(next, next + tasks);
    if (rank >= first && rank < first + tasks) set_task(job, rank - first);
    next += tasks;
  }
  if (options.auto_set_gpu && gpus_per_task_ > 0) {
    internal::cluster::show_own_gpus(local[static_cast<std::size_t>(rank)], gpus_per_task_);
  }
}

std::map<std::string, int> SlurmClusterResolver::num_accelerators() const {
  return {{"GPU", gpus_per_task_}};
}

}  // namespace cohort
