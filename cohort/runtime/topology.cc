// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/strings.h"

namespace cohort::internal::runtime {
namespace {

namespace fs = std::filesystem;

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

// "max 100000" or "150000 100000": cgroup v2's cpu.max.
double quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return kNoQuota;
  const double allowed = std::strtod(quota.c_str(), nullptr);
  return allowed > 0 ? allowed / period : kNoQuota;
}

// -1 for none: cgroup v1's two files.
double quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return kNoQuota;
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

// The least of a group and all above it. In a container the group's path may be the host's, of
// which only the mount's own folder is there: what is missing is passed over.
double least_quota(const fs::path& mount, const std::string& group,
                   double (*read)(const fs::path&)) {
  double least = read(mount);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    least = std::min(least, read(folder));
  }
  return least;
}

bool lists_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
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

int count_cores() {
  const std::vector<int> cpus = allowed_cpus();
  const int logical = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                                   : static_cast<int>(cpus.size());
  return std::max(1, std::min(logical, physical_cores(cpus, logical)));
}

double quota() {
  static const double read = cgroup_quota("/");
  return read;
}

}  // namespace

double cgroup_quota(const std::string& root) {
  const fs::path mounts = fs::path(root) / "sys/fs/cgroup";
  std::ifstream own(fs::path(root) / "proc/self/cgroup");
  double least = kNoQuota;
  for (std::string line; std::getline(own, line);) {  // "0::/group" or "1:cpu,cpuacct:/group"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      // Beside v1 controllers, v2 is mounted one folder below.
      least = std::min({least, least_quota(mounts, group, quota_v2),
                        least_quota(mounts / "unified", group, quota_v2)});
    } else if (lists_cpu(controllers)) {
      least = std::min({least, least_quota(mounts / controllers, group, quota_v1),
                        least_quota(mounts / "cpu", group, quota_v1)});
    }
  }
  return least;
}

int cores_of_quota(double quota, int otherwise) {
  if (quota >= otherwise) return otherwise;
  constexpr double kRounding = 0.01;  // 100001 us of 100000 are one core
  return std::max(1, static_cast<int>(std::ceil(quota - kRounding)));
}

int usable_cores() { return cores_of_quota(quota(), cores_at_once()); }

std::string cores_identity() {
  std::string machine;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine);
  std::error_code none;
  const std::string container = fs::read_symlink("/proc/self/ns/cgroup", none).string();
  return str_cat(machine, " ", container, " ", bracketed(allowed_cpus()));
}

int cores_at_once() {
  static const int count = count_cores();
  return count;
}

double usable_cpu_time() { return std::min<double>(quota(), cores_at_once()); }

}  // namespace cohort::internal::runtime
