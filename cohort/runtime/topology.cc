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

namespace cohort::internal {
namespace {

int cores_of_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  return CPU_COUNT(&set);
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

// Distinct (package, core) pairs; hyper-threads of one core count once.
int physical_cores(int otherwise) {
  std::set<std::pair<int, int>> cores;
  for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
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
  const int affinity = std::max(1, cores_of_affinity());
  return std::max(1, std::min({affinity, cores_of_quota(affinity), physical_cores(affinity)}));
}

}  // namespace

int usable_cores() {
  static const int cores = count_usable_cores();
  return cores;
}

}  // namespace cohort::internal
