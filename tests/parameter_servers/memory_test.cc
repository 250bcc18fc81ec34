// SPDX-License-Identifier: Apache-2.0
//
// The most memory that a parameter server's process has ever had, beside what it keeps.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"
#include "tests/all_faults.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::internal::cluster::StoreServer;
using cohort::testing::comes_to_stop;
using cohort::testing::Job;
using cohort::testing::Process;

constexpr int kTable = 96;  // MiB; Adam's slots are two more of it

// MiB
double most_memory_of(const Process& one) {
  std::ifstream in(str_cat("/proc/", one.pid(), "/status"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  }
  return -1;
}

void expect_little_beside_what_it_keeps(const Process& server) {
  const double got = most_memory_of(server);
  EXPECT_GT(got, 3.0 * kTable) << "else it does not keep it";
  // And once more what is pushed, which gRPC may have beside it, where no lane could be opened.
  EXPECT_LE(got, 1.1 * 3 * kTable + kTable + 256) << server.text();
  ::testing::Test::RecordProperty("most_mib", static_cast<int>(got));
}

TEST(MemoryOfAServer, IsThatOfItsParametersAndSlots) {
  const Job job({MEMORY_PROGRAM, std::to_string(kTable), "1"});
  const auto ps = job.start("ps", 0);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0, "program.pushed=stop");
  ASSERT_TRUE(comes_to_stop(*chief)) << chief->text();
  expect_little_beside_what_it_keeps(*ps);
}

TEST(MemoryOfAServer, IsTheSameOfEachCopy) {
  if (!cohort::testing::all_faults()) GTEST_SKIP() << "in make test-faults";
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  const Job job({MEMORY_PROGRAM, std::to_string(kTable), "2"}, 2,
                {"COHORT_STORE=" + store.address()});
  const auto zero = job.start("ps", 0);
  const auto one = job.start("ps", 1);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0, "program.pushed=stop");
  ASSERT_TRUE(comes_to_stop(*chief)) << chief->text();
  expect_little_beside_what_it_keeps(*zero);
  expect_little_beside_what_it_keeps(*one);
}

}  // namespace
