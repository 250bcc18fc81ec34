// SPDX-License-Identifier: Apache-2.0
//
// Variables of several workers, which are threads here.
#include <gtest/gtest.h>

#include <memory>

#include "cohort/base/error.h"
#include "cohort/collectives/transports/threads/thread_job.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal {
namespace {

using testing::expect_error;

// One process of a job.
struct Worker {
  Worker(int replicas, const std::shared_ptr<Communicator>& communicator)
      : group({.replicas = replicas}), rank(communicator->rank()) {
    LocalVariablesOptions options{.devices = {}, .communicator = communicator};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    creator = std::make_shared<LocalVariables>(options);
  }
  Variable make(InitialValue initial, VariableOptions options = {}) const {
    const VariableCreatorScope scope(creator);
    return Variable(std::move(initial), std::move(options));
  }
  ReplicaGroup group;
  const int rank;
  std::shared_ptr<LocalVariables> creator;
};

// Calls body(worker) for each of `workers` at the same time.
template <class Body>
void play(int workers, int replicas, const Body& body) {
  ThreadJob job(workers);
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    job.run([&](Communicator& c) {
      Worker worker(replicas, job.share(c.rank()));
      body(worker);
    });
  });
}

TEST(WorkerVariables, BeginWithTheFirstWorkersValue) {
  for (const int replicas : {1, 2}) {
    play(3, replicas, [](Worker& w) {
      const Variable v = w.make(full({4}, w.rank + 1.0));
      const Variable count = w.make(full({}, w.rank, kInt64), {.trainable = false});
      for (const Variable& one : v.components()) {
        EXPECT_EQ(to_vector<float>(one.value()), std::vector<float>(4, 1));
      }
      EXPECT_EQ(count.value().item<int64_t>(), 0);
    });
  }
}

TEST(WorkerVariables, ThatAreMadeInsideARunBeginWithItToo) {
  play(2, 2, [](Worker& w) {
    std::vector<Variable> made(2);
    w.group.run([&](int r) {
      const VariableCreatorScope scope(w.creator);
      made[static_cast<std::size_t>(r)] = Variable(full({2}, w.rank + 5.0));
    });
    EXPECT_EQ(made[0], made[1]);
    EXPECT_EQ(to_vector<float>(made[0].value()), (std::vector<float>{5, 5}));
  });
}

TEST(WorkerVariables, DifferentOnesAreAnErrorThatNamesThem) {
  play(2, 1, [](Worker& w) {
    expect_error<FailedPrecondition>(
        {"[variable] expected the same value on every worker",
         "first value of \"w\", float32[2] on", "first value of \"w\", float32[3] on worker 1"},
        [&] { w.make(zeros({2 + w.rank}), {.name = "w"}); });
    expect_error<FailedPrecondition>({"\"a\", float32[2] on worker 0", "\"b\""}, [&] {
      w.make(zeros({2}), {.name = w.rank == 0 ? "a" : "b"});
    });
    EXPECT_EQ(w.make(zeros({2})).value().numel(), 2);  // and all go on
  });
}

}  // namespace
}  // namespace cohort::internal
