// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::internal {
namespace {

// The logical CPUs that this process may run on; empty where the kernel does not say.
std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// cgroup v2: "<quota|max> <period>" in cpu.max of our own group, else of the root.
int cores_of_quota(int otherwise) {
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  std::string group;
  while (std::getline(own, line)) {
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  }
  for (const std::string& path :
       {"/sys/fs/cgroup" + group + "/cpu.max", std::string("/sys/fs/cgroup/cpu.max")}) {
    std::ifstream file(path);
    std::string quota;
    double period = 0;
    if (!(file >> quota >> period) || quota == "max" || period <= 0) continue;
    return std::max(1, static_cast<int>(std::floor(std::stod(quota) / period + 0.01)));
  }
  return otherwise;
}

// Distinct (package, core) pairs among `cpus`; hyper-threads of one core count once.
int physical_cores(const std::vector<int>& cpus, int otherwise) {
  std::set<std::pair<int, int>> cores;
  for (const int cpu : cpus) {
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::ifstream core_file(base + "core_id");
    std::ifstream package_file(base + "physical_package_id");
    int core = 0;
    int package = 0;
    if (!(core_file >> core) || !(package_file >> package)) return otherwise;
    cores.emplace(package, core);
  }
  return cores.empty() ? otherwise : static_cast<int>(cores.size());
}

int count_usable_cores() {
  const std::vector<int> cpus = allowed_cpus();
  const int logical = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                                   : static_cast<int>(cpus.size());
  return std::max(1, std::min({logical, cores_of_quota(logical), physical_cores(cpus, logical)}));
}

}  // namespace

int usable_cores() {
  static const int cores = count_usable_cores();
  return cores;
}

}  // namespace cohort::internal
