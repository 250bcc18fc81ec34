// SPDX-License-Identifier: Apache-2.0
//
// Workers as processes of a user have them, but as threads of this one: they meet over loopback.
// tests/multi_worker has real ones.
#include "cohort/strategy/multi_worker_mirrored.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cohort/cluster/test_variables.h"
#include "cohort/collectives/transports/mpi/mpi_lanes.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::JobVariables;
using testing::run_with_deadline;

std::vector<std::string> free_addresses(int count) {
  std::vector<std::string> addresses(static_cast<std::size_t>(count));
  std::vector<internal::collectives::Socket> held;
  for (std::string& address : addresses)
    held.push_back(internal::collectives::listen_on_free_port(&address));
  return addresses;
}

MultiWorkerMirroredOptions options_of(const ClusterSpec& spec, const std::string& type, int id) {
  return {.cluster_resolver = std::make_shared<SimpleClusterResolver>(
              spec, TaskOptions{.task_type = type, .task_id = id}),
          .start_timeout = std::chrono::seconds(60)};
}

/// body(strategy, worker) on each worker of a cluster without a chief.
void on_workers(int count, const std::function<void(const Strategy&, int worker)>& body) {
  run_with_deadline(std::chrono::seconds(90), [&] {
    const ClusterSpec spec(ClusterSpec::Jobs{{"worker", free_addresses(count)}});
    std::vector<std::jthread> threads;
    for (int w = 0; w < count; ++w) {
      threads.emplace_back([&, w] {
        try {
          body(MultiWorkerMirroredStrategy(options_of(spec, "worker", w)), w);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "worker " << w << ": " << e.what();
        }
      });
    }
  });
}

TEST(MultiWorkerMirrored, WorkersAreReplicasOfOneJob) {
  on_workers(2, [](const Strategy& strategy, int worker) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
    EXPECT_EQ(strategy.extended().num_local_replicas(), 1);
    EXPECT_EQ(strategy.extended().layout().worker(), worker);
    EXPECT_EQ(strategy.extended().should_checkpoint(), worker == 0);
    EXPECT_EQ(strategy.extended().should_save_summary(), worker == 0);
    EXPECT_EQ(strategy.cluster_resolver()->task_id(), worker);
    EXPECT_STREQ(strategy.extended().name(), "MultiWorkerMirroredStrategy");
  });
}

TEST(MultiWorkerMirrored, VariablesTakeTheChiefsFirstValues) {
  on_workers(2, [](const Strategy& strategy, int worker) {
    const auto scope = strategy.scope();
    const Variable v(scalar(worker + 1.0));
    EXPECT_EQ(v.value().item<double>(), 1.0);
  });
}

// Case R04: local mode, one worker, which is the chief.
TEST(MultiWorkerMirrored, WithoutAClusterItIsOneWorker) {
  const JobVariables none{};
  const MultiWorkerMirroredStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_TRUE(strategy.extended().should_checkpoint());
  EXPECT_EQ(strategy.cluster_resolver(), nullptr);
  const JobVariables empty{{"TF_CONFIG", "{}"}};
  EXPECT_EQ(MultiWorkerMirroredStrategy().num_replicas_in_sync(), 1);
  const auto doubled = strategy.run([] { return scalar(2); });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, doubled).item<float>(), 2);
}

TEST(MultiWorkerMirrored, OneWorkerAndAnEvaluatorAreAlone) {
  const ClusterSpec one({{"worker", {"localhost:1"}}});
  EXPECT_EQ(MultiWorkerMirroredStrategy(options_of(one, "worker", 0)).num_replicas_in_sync(), 1);
  const ClusterSpec two({{"worker", {"localhost:1", "localhost:2"}}});
  const MultiWorkerMirroredStrategy evaluator(options_of(two, "evaluator", 0));
  EXPECT_EQ(evaluator.num_replicas_in_sync(), 1);
  EXPECT_TRUE(evaluator.extended().should_checkpoint());
}

TEST(MultiWorkerMirrored, RefusesWhatIsNoClusterOfWorkers) {
  const ClusterSpec two({{"worker", {"localhost:1", "localhost:2"}}, {"ps", {"localhost:3"}}});
  const auto make = [](MultiWorkerMirroredOptions options) {
    return [options] { MultiWorkerMirroredStrategy strategy(options); };
  };
  expect_error<InvalidArgument>(
      {"you must also specify `task_type` and `task_id`"},
      make({.cluster_resolver = std::make_shared<SimpleClusterResolver>(two)}));
  expect_error<InvalidArgument>({"`task_id` 5 exceeds"}, make(options_of(two, "worker", 5)));
  expect_error<InvalidArgument>({"'ps'", "ParameterServerStrategy"},
                                make(options_of(two, "ps", 0)));
  // As Kubeflow's workers that come and go have it: each would train alone.
  const ClusterSpec itself = ClusterSpec::sparse({{"worker", {{3, "localhost:4"}}}});
  expect_error<InvalidArgument>({"the addresses of all tasks of job 'worker'", "localhost:4"},
                                make(options_of(itself, "worker", 3)));
  {
    const JobVariables wrong{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]},
                                               "task": {"type": "worker", "index": 5}})"}};
    expect_error<InvalidArgument>({"`task_id` 5 exceeds", "(at TF_CONFIG.task.index)"}, make({}));
  }
  {
    const JobVariables none{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}})"}};
    expect_error<InvalidArgument>({"`task_type` and `task_id`", "(at TF_CONFIG.task)"}, make({}));
  }
  const ClusterSpec far({{"worker", {"192.0.2.1:2222", "192.0.2.2:2222"}}});
  expect_error<InvalidArgument>({"192.0.2.1:2222", "allow_insecure"},
                                make(options_of(far, "worker", 0)));
  expect_error<InvalidArgument>({"bytes_per_pack", "-1"},
                                make({.communication_options = {.bytes_per_pack = -1}}));
  expect_error<Unimplemented>(
      {"NCCL"},
      make({.communication_options = {.implementation = CommunicationImplementation::kNccl}}));
}

TEST(MultiWorkerMirrored, LeasesThatCannotHoldAreRefused) {
  const ClusterSpec two(ClusterSpec::Jobs{{"worker", free_addresses(2)}});
  const auto make = [&](const auto& change) {
    MultiWorkerMirroredOptions options = options_of(two, "worker", 0);
    options.start_timeout = std::chrono::milliseconds(50);
    change(options);
    return [options] { MultiWorkerMirroredStrategy strategy(options); };
  };
  expect_error<InvalidArgument>({"straggler_ratio", "0.5"},
                                make([](auto& o) { o.straggler_ratio = 0.5; }));
  expect_error<InvalidArgument>({"heartbeat", "200 ms and 100 ms"}, make([](auto& o) {
                                  o.heartbeat = std::chrono::milliseconds(200);
                                  o.lease = std::chrono::milliseconds(100);
                                }));
  // The option counts, not the variable.
  ::setenv("COHORT_LEASE_MS", "soon", 1);
  ::setenv("COHORT_STRAGGLER_RATIO", "0.5", 1);
  expect_error<InvalidArgument>({"COHORT_LEASE_MS", "\"soon\""}, make([](auto&) {}));
  expect_error<DeadlineExceeded>({"rank 1"}, make([](auto& o) {
                                   o.lease = std::chrono::seconds(3);
                                   o.straggler_ratio = 3;
                                 }));
  ::unsetenv("COHORT_LEASE_MS");
  ::unsetenv("COHORT_STRAGGLER_RATIO");
}

TEST(MultiWorkerMirrored, MpiIsRefusedWhereItCannotKeepWhatIsAskedFor) {
  const JobVariables tls{{"COHORT_TLS_CERTIFICATE", "/nowhere"},
                         {"COHORT_TLS_KEY", "/nowhere"},
                         {"COHORT_TLS_AUTHORITY", "/nowhere"}};
  const ClusterSpec two({{"worker", {"localhost:1", "localhost:2"}}});
  MultiWorkerMirroredOptions options = options_of(two, "worker", 0);
  options.communication_options.implementation = CommunicationImplementation::kMpi;
  const auto make = [&] { MultiWorkerMirroredStrategy strategy(options); };
  if (internal::collectives::has_mpi()) {
    expect_error<InvalidArgument>({"COHORT_TLS_CERTIFICATE", "kMpi", "kAuto"}, make);
  } else {
    expect_error<Unimplemented>({"kMpi", "libopenmpi-dev", "COHORT_USE_MPI"}, make);
  }
}

TEST(MultiWorkerMirrored, WhoDoesNotComeIsNamed) {
  const std::vector<std::string> addresses = free_addresses(2);
  MultiWorkerMirroredOptions options =
      options_of(ClusterSpec(ClusterSpec::Jobs{{"worker", addresses}}), "worker", 1);
  options.start_timeout = std::chrono::milliseconds(50);
  expect_error<DeadlineExceeded>({"rank 0 (" + addresses[0] + ")", "TF_CONFIG"},
                                 [&] { MultiWorkerMirroredStrategy strategy(options); });
}

TEST(MultiWorkerMirrored, WorkersThatRoundGradientsMeetTheirLike) {
  run_with_deadline(std::chrono::seconds(90), [] {
    const ClusterSpec spec(ClusterSpec::Jobs{{"worker", free_addresses(2)}});
    std::vector<std::jthread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        MultiWorkerMirroredOptions options = options_of(spec, "worker", w);
        options.communication_options.bfloat16_gradients = w == 1;
        expect_error<FailedPrecondition>(
            {"the same job", "gradients as bfloat16", "Cohort", "LibTorch", "CPU capability"},
            [&] { MultiWorkerMirroredStrategy strategy(options); });
      });
    }
  });
}

TEST(MultiWorkerMirrored, WorkersOfOtherClustersAreRefused) {
  run_with_deadline(std::chrono::seconds(90), [] {
    const std::vector<std::string> addresses = free_addresses(3);
    std::vector<std::jthread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        // Worker 1 knows of a third one.
        const std::vector<std::string> known(addresses.begin(), addresses.begin() + 2 + w);
        expect_error<FailedPrecondition>({"2 ranks", "3 ranks", addresses[2]}, [&] {
          MultiWorkerMirroredStrategy strategy(
              options_of(ClusterSpec(ClusterSpec::Jobs{{"worker", known}}), "worker", w));
        });
      });
    }
  });
}

}  // namespace
}  // namespace cohort
