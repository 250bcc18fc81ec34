// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kPeriod = 100'000;  // us, the kernel's default

[[noreturn]] void compute_until_killed() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  volatile unsigned long turns = 0;
  for (;;) turns = turns + 1;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// The group of this process under `controller` ("cpu", or "" for v2).
std::string own_group(const std::string& controller) {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

// The folder of our own group in the hierarchy that has quotas; v2 if `file` is cpu.max.
fs::path hierarchy(std::string& file) {
  for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    if (!fs::exists(fs::path(mount) / "cpu.cfs_quota_us")) continue;
    file = "cpu.cfs_quota_us";
    return mount + own_group("cpu");
  }
  file = "cpu.max";
  return "/sys/fs/cgroup" + own_group("");
}

}  // namespace

BusyProcesses::BusyProcesses(int count) {
  for (int i = 0; i < count; ++i) {
    const pid_t process = fork();
    COHORT_CHECK_STATE(process >= 0, "[contention_bench] cannot fork");
    if (process == 0) compute_until_killed();
    processes_.push_back(process);
  }
}

BusyProcesses::~BusyProcesses() {
  for (const pid_t process : processes_) kill(process, SIGKILL);
  for (const pid_t process : processes_) waitpid(process, nullptr, 0);
}

CpuQuota::CpuQuota(double cores) {
  std::string file;
  const fs::path parent = hierarchy(file);
  before_ = parent.string();
  group_ = (parent / str_cat("cohort_bench_", getpid())).string();
  std::error_code error;
  if (!fs::create_directory(group_, error)) {
    throw Unavailable(str_cat("cannot make the group ", group_, ": ", error.message()), "cgroup");
  }
  const std::string quota = std::to_string(std::lround(cores * kPeriod));
  const bool is_set = file == "cpu.max"
                          ? write_file(fs::path(group_) / file, str_cat(quota, " ", kPeriod))
                          : write_file(fs::path(group_) / "cpu.cfs_period_us", str_cat(kPeriod)) &&
                                write_file(fs::path(group_) / file, quota);
  if (is_set && write_file(fs::path(group_) / "cgroup.procs", str_cat(getpid()))) {
    leave();
    return;
  }
  rmdir(group_.c_str());
  throw Unavailable(str_cat("cannot set ", file, " in ", group_,
                            " (no right, or the cpu controller is not enabled there)"),
                    "cgroup");
}

CpuQuota::~CpuQuota() {
  // Who has just ended leaves the group a moment later.
  for (int i = 0; i < 100 && rmdir(group_.c_str()) != 0; ++i) usleep(10'000);
}

void CpuQuota::enter() {
  COHORT_CHECK_STATE(write_file(fs::path(group_) / "cgroup.procs", str_cat(getpid())),
                     "[contention_bench] cannot enter ", group_);
}

void CpuQuota::leave() {
  COHORT_CHECK_STATE(write_file(fs::path(before_) / "cgroup.procs", str_cat(getpid())),
                     "[contention_bench] cannot go back to ", before_);
}

}  // namespace cohort::bench
