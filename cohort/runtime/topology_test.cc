// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace cohort::internal::runtime {
namespace {

namespace fs = std::filesystem;

/// A folder that looks like a machine's root.
class Quota : public ::testing::Test {
 protected:
  Quota() {
    std::string name = (fs::temp_directory_path() / "cohort-root-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~Quota() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_v1(const std::string& group, const std::string& quota) {
    write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_quota_us", quota);
    write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_period_us", "100000\n");
  }
  double quota() const { return cgroup_quota(root_.string()); }

  fs::path root_;
};

TEST_F(Quota, IsNoneWithoutFiles) { EXPECT_EQ(quota(), kNoQuota); }

TEST_F(Quota, OfVersion2) {
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), kNoQuota);
  write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
}

TEST_F(Quota, OfVersion2IsTheLeastOfAllAbove) {
  write("proc/self/cgroup", "0::/pod/job\n");
  write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  write("sys/fs/cgroup/pod/job/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5);
}

TEST_F(Quota, OfVersion1) {
  write("proc/self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/pod/job\n0::/\n");
  write_v1("/pod/job", "-1\n");
  EXPECT_EQ(quota(), kNoQuota);
  write_v1("/pod", "250000\n");
  EXPECT_DOUBLE_EQ(quota(), 2.5);
  write_v1("/pod/job", "75000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.75);
}

// The path is the host's, the files are those of the container's own group.
TEST_F(Quota, InAContainerIsThatOfTheMount) {
  write("proc/self/cgroup", "3:cpu,cpuacct:/docker/0123\n");
  write_v1("", "50000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5);
  write("proc/self/cgroup", "0::/kubepods/0123\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 2);
}

TEST_F(Quota, DamagedFilesAreNone) {
  write("proc/self/cgroup", "nonsense\n0::/job\n3:cpu,cpuacct:/job\n");
  for (const char* text : {"", "many\n", "0 100000\n", "100000 0\n", "-5 100000\n", "100000\n"}) {
    write("sys/fs/cgroup/job/cpu.max", text);
    EXPECT_EQ(quota(), kNoQuota) << text;
  }
  write_v1("/job", "x\n");
  EXPECT_EQ(quota(), kNoQuota);
}

TEST(CoresOfQuota, RoundsUp) {
  EXPECT_EQ(cores_of_quota(0.5, 4), 1);
  EXPECT_EQ(cores_of_quota(1, 4), 1);
  EXPECT_EQ(cores_of_quota(1.005, 4), 1);
  EXPECT_EQ(cores_of_quota(1.5, 4), 2);
  EXPECT_EQ(cores_of_quota(3.2, 4), 4);
  EXPECT_EQ(cores_of_quota(7, 4), 4);
  EXPECT_EQ(cores_of_quota(kNoQuota, 4), 4);
}

TEST(Topology, CoresAreKnownByTheirAffinity) {
  const std::string all = cores_identity();
  EXPECT_EQ(cores_identity(), all);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) == 1) GTEST_SKIP() << "one core";
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_NE(cores_identity(), all);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(Topology, TimeIsAtMostOfAllCores) {
  EXPECT_GT(usable_cpu_time(), 0);
  EXPECT_LE(usable_cpu_time(), usable_cores());
}

}  // namespace
}  // namespace cohort::internal::runtime
