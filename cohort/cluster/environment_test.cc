// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/environment.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cohort/cluster/test_variables.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::JobVariables;
using Texts = std::vector<std::string>;

TEST(Slurm, ListsOfHosts) {
  using internal::cluster::expand_hostlist;
  EXPECT_EQ(expand_hostlist("n1"), Texts{"n1"});
  EXPECT_EQ(expand_hostlist("n[1-2],m5,o[3-4,6,7-9]"),
            (Texts{"n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"}));
  EXPECT_EQ(expand_hostlist("n[08-11]"), (Texts{"n08", "n09", "n10", "n11"}));
  for (const char* bad : {"", "n[1-2", "n1]", "n[a-b]", "n[1-2-3]", "n[2-1]", "n1,,n2", "n[1]x",
                          "n[[1]]", "n[1-999999999999]"}) {
    expect_error<InvalidArgument>({"Invalid hostlist format", bad}, [&] { expand_hostlist(bad); });
  }
}

TEST(Slurm, TasksPerNode) {
  using internal::cluster::expand_tasks_per_node;
  EXPECT_EQ(expand_tasks_per_node("3(x2),2,1"), (std::vector<int>{3, 3, 2, 1}));
  for (const char* bad : {"", "x", "3(x)", "3(2)", "3(x2", "-1", "1(x9999999)"}) {
    expect_error<InvalidArgument>({"Invalid tasks-per-node list format", bad},
                                  [&] { expand_tasks_per_node(bad); });
  }
}

TEST(SlurmClusterResolver, HandsRanksOutInTheOrderOfTheNodes) {
  const JobVariables variables{{"SLURM_PROCID", "3"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_STEP_NODELIST", "n[9-10],m1"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2,1(x2)"}};
  const SlurmClusterResolver resolver;
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"n9:8888", "n9:8889", "n10:8888", "m1:8888"}}}));
  EXPECT_EQ(resolver.get_task_info(), std::pair(std::string("worker"), 3));
  EXPECT_EQ(resolver.master(), "grpc://m1:8888");
}

TEST(SlurmClusterResolver, JobsAndGpusAreSharedOut) {
  const JobVariables variables{{"SLURM_PROCID", "2"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_STEP_NODELIST", "n[1-2]"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  const SlurmClusterResolver resolver(
      {.jobs = {{"worker", 3}, {"ps", 1}}, .port_base = 2222, .gpus_per_node = 4});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"ps", {"n1:2222"}}, {"worker", {"n1:2223", "n2:2222", "n2:2223"}}}));
  EXPECT_EQ(resolver.get_task_info(), std::pair(std::string("worker"), 1));
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 2);
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "0,1");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(SlurmClusterResolver, KnowsHowRanksWereHandedOut) {
  {
    const JobVariables variables{{"SLURM_PROCID", "3"},
                                 {"SLURM_STEP_NUM_TASKS", "4"},
                                 {"SLURM_STEP_NODELIST", "a,b"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                                 {"SLURM_DISTRIBUTION", "cyclic:block"}};
    EXPECT_EQ(SlurmClusterResolver().cluster_spec(),
              ClusterSpec({{"worker", {"a:8888", "b:8888", "a:8889", "a:8890"}}}));
    // The nodes keep their order, whatever their names.
    ::setenv("SLURM_STEP_NODELIST", "b,a", 1);
    ::setenv("SLURM_DISTRIBUTION", "block", 1);
    EXPECT_EQ(SlurmClusterResolver({.tasks_per_node = {{"a", 1}, {"b", 3}}}).cluster_spec(),
              ClusterSpec({{"worker", {"b:8888", "b:8889", "b:8890", "a:8888"}}}));
  }
  const JobVariables variables{{"SLURM_PROCID", "0"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_STEP_NODELIST", "a,b"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                               {"SLURM_DISTRIBUTION", "arbitrary"}};
  expect_error<Unimplemented>({"SLURM_DISTRIBUTION=arbitrary"}, [] { SlurmClusterResolver(); });
}

TEST(SlurmClusterResolver, RefusesWhatDoesNotFit) {
  {
    const JobVariables variables{{"SLURM_PROCID", "0"}};
    expect_error<FailedPrecondition>(
        {"SLURM_STEP_NUM_TASKS not found in environment. Not running inside a SLURM step?"},
        [] { SlurmClusterResolver(); });
  }
  const JobVariables variables{{"SLURM_PROCID", "0"},
                               {"SLURM_STEP_NUM_TASKS", "2"},
                               {"SLURM_STEP_NODELIST", "n1"},
                               {"SLURM_STEP_TASKS_PER_NODE", "2"}};
  expect_error<FailedPrecondition>({"Requested 3 tasks but only 2 were assigned."}, [] {
    SlurmClusterResolver({.jobs = {{"worker", 3}}});
  });
  expect_error<FailedPrecondition>({"Requested more GPUs per node than available"}, [] {
    SlurmClusterResolver({.gpus_per_node = 2, .gpus_per_task = 2});
  });
}

TEST(SageMakerClusterResolver, SortsHosts) {
  const JobVariables variables{{"SM_HOSTS", R"(["algo-2", "algo-1"])"},
                               {"SM_CURRENT_HOST", "algo-2"}};
  const SageMakerClusterResolver resolver;
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"algo-1:2223", "algo-2:2223"}}}));
  EXPECT_EQ(resolver.task_id(), 1);
  const JobVariables wrong{{"SM_HOSTS", "algo-1"}, {"SM_CURRENT_HOST", "algo-2"}};
  expect_error<InvalidArgument>({"SM_HOSTS", "\"algo-1\""}, [] { SageMakerClusterResolver(); });
}

TEST(LauncherClusterResolver, KnowsEachLauncher) {
  const std::vector<std::vector<const char*>> launchers = {
      {"RANK", "WORLD_SIZE"},
      {"HOROVOD_RANK", "HOROVOD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& names : launchers) {
    SCOPED_TRACE(names[0]);
    const JobVariables variables{{names[0], "1"}, {names[1], "2"}, {"MASTER_PORT", "29500"}};
    const auto resolver = detect_cluster();
    ASSERT_TRUE(resolver);
    EXPECT_EQ(resolver->cluster_spec(),
              ClusterSpec({{"worker", {"localhost:29501", "localhost:29502"}}}));
    EXPECT_EQ(resolver->task_type(), "worker");
    EXPECT_EQ(resolver->task_id(), 1);
  }
}

// Each rank is a process, two of them on each of two hosts; MPI's, to which somebody has said
// MASTER_ADDR.
TEST(LauncherClusterResolver, RanksOfSeveralHostsTellEachOtherWhereTheyAre) {
  const int port = testing::free_ports(1)[0];
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0) continue;
    ::alarm(60);
    const JobVariables variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", std::to_string(port)}};
    const auto resolver = detect_cluster();
    const auto at = [&](int r) { return "127.0.0.1:" + std::to_string(port + 2 + r); };
    const bool right =
        resolver->cluster_spec() == ClusterSpec({{"worker", {at(0), at(1), at(2), at(3)}}}) &&
        resolver->task_id() == rank;
    ::_exit(right ? 0 : 1);
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
}

TEST(LauncherClusterResolver, RefusesWhatItCannotKnow) {
  {
    const JobVariables none{};
    expect_error<FailedPrecondition>({"RANK and WORLD_SIZE"}, [] { LauncherClusterResolver(); });
  }
  {
    const JobVariables two_hosts{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}};
    expect_error<FailedPrecondition>({"MASTER_ADDR", "4 ranks", "2 are on this host", "TF_CONFIG"},
                                     [] { LauncherClusterResolver(); });
  }
  {
    const JobVariables wrong{{"RANK", "4"}, {"WORLD_SIZE", "4"}};
    expect_error<InvalidArgument>({"RANK", "4 ranks, got 4"}, [] { LauncherClusterResolver(); });
  }
  const JobVariables text{{"RANK", "one"}, {"WORLD_SIZE", "4"}};
  expect_error<InvalidArgument>({"RANK", "\"one\""}, [] { LauncherClusterResolver(); });
}

// Kubeflow's Trainer, where the container runs the program itself.
TEST(LauncherClusterResolver, ANodeOfATrainerIsOneWorker) {
  const int port = testing::free_ports(1)[0];
  const auto node = [&](const char* rank) {
    return JobVariables{{"PET_NNODES", "2"},
                        {"PET_NODE_RANK", rank},
                        {"PET_MASTER_ADDR", "127.0.0.1"},
                        {"PET_MASTER_PORT", std::to_string(port)}};
  };
  const auto at = [&](int r) { return "127.0.0.1:" + std::to_string(port + 2 + r); };
  const ClusterSpec both(ClusterSpec::Jobs{{"worker", {at(0), at(1)}}});
  const pid_t other = ::fork();
  if (other == 0) {
    ::alarm(60);
    const JobVariables variables = node("1");
    const auto resolver = detect_cluster();
    ::_exit(resolver && resolver->cluster_spec() == both && resolver->task_id() == 1 ? 0 : 1);
  }
  {
    const JobVariables variables = node("0");
    EXPECT_EQ(internal::cluster::cluster_source().resolver, "LauncherClusterResolver");
    const auto resolver = detect_cluster();
    ASSERT_TRUE(resolver);
    EXPECT_EQ(resolver->cluster_spec(), both);
    EXPECT_EQ(resolver->task_id(), 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

TEST(LauncherClusterResolver, ANodeWhoseProcessesNobodyHasStartedIsRefused) {
  {
    const JobVariables one{{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}};
    EXPECT_EQ(detect_cluster(), nullptr);
  }
  {
    const JobVariables several{
        {"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "4"}};
    expect_error<FailedPrecondition>(
        {"PET_NNODES=2", "PET_NPROC_PER_NODE=4", "train alone", "cohortrun"},
        [] { detect_cluster(); });
  }
  {
    const JobVariables no_rank{{"PET_NNODES", "2"}};
    expect_error<FailedPrecondition>({"PET_NODE_RANK=(not set)", "cohortrun"},
                                     [] { detect_cluster(); });
  }
  {
    const JobVariables range{{"PET_NNODES", "2:4"}, {"PET_NODE_RANK", "0"}};
    expect_error<InvalidArgument>({"PET_NNODES", "2:4"}, [] { detect_cluster(); });
  }
  const JobVariables no_host{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}};
  expect_error<FailedPrecondition>({"PET_MASTER_ADDR", "2 ranks"}, [] { detect_cluster(); });
}

TEST(DetectCluster, TheMostSpecificComesFirst) {
  {
    const JobVariables none{};
    EXPECT_EQ(detect_cluster(), nullptr);
  }
  {
    // A step of one task is a process alone.
    const JobVariables one{{"SLURM_PROCID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_STEP_NODELIST", "n1"},
                           {"SLURM_STEP_TASKS_PER_NODE", "1"}};
    EXPECT_EQ(detect_cluster(), nullptr);
  }
  const JobVariables all{{"TF_CONFIG", R"({"cluster": {"worker": ["tf:1"]}})"},
                         {"RANK", "0"},
                         {"WORLD_SIZE", "1"},
                         {"SM_HOSTS", R"(["sm"])"},
                         {"SM_CURRENT_HOST", "sm"}};
  EXPECT_EQ(detect_cluster()->cluster_spec().task_address("worker", 0), "tf:1");
  ::unsetenv("TF_CONFIG");
  EXPECT_EQ(detect_cluster()->cluster_spec().task_address("worker", 0), "localhost:29600");
  ::unsetenv("RANK");
  EXPECT_EQ(detect_cluster()->cluster_spec().task_address("worker", 0), "sm:2223");
}

}  // namespace
}  // namespace cohort
