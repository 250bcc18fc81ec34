// SPDX-License-Identifier: Apache-2.0
//
// Variables of several workers, which are threads here.
#include <gtest/gtest.h>

#include <memory>

#include "cohort/base/error.h"
#include "cohort/collectives/test_late_rank.h"
#include "cohort/collectives/transports/threads/thread_job.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables {
namespace {

using testing::expect_error;

// One process of a job.
struct Worker {
  Worker(int replicas, const std::shared_ptr<collectives::Communicator>& communicator)
      : group({.replicas = replicas}), rank(communicator->rank()) {
    LocalVariablesOptions options{.devices = {}, .communicator = communicator};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    creator = std::make_shared<LocalVariables>(options);
  }
  Variable make(InitialValue initial, VariableOptions options = {}) const {
    const VariableCreatorScope scope(creator);
    return Variable(std::move(initial), std::move(options));
  }
  runtime::ReplicaGroup group;
  const int rank;
  std::shared_ptr<LocalVariables> creator;
};

// Calls body(worker) for each of `workers` at the same time.
template <class Body>
void play(int workers, int replicas, const Body& body) {
  collectives::ThreadJob job(workers);
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    job.run([&](collectives::Communicator& c) {
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
    expect_error<FailedPrecondition>(
        {"\"c\", aggregation sum, float32[2] on worker 0",
         "\"c\", aggregation mean, float32[2] on worker 1"},
        [&] {
          w.make(zeros({2}), {.name = "c",
                              .aggregation = w.rank == 0 ? Aggregation::kSum : Aggregation::kMean});
        });
    EXPECT_EQ(w.make(zeros({2})).value().numel(), 2);  // and all go on
  });
}

// Each would write what it has called, and copies would differ from there on.
TEST(WorkerVariables, DifferentWritesAreAnErrorThatNamesThem) {
  for (const Aggregation aggregation : {Aggregation::kSum, Aggregation::kOnlyFirstReplica}) {
    play(2, 1, [&](Worker& w) {
      const Variable v = w.make(zeros({2}), {.name = "w", .aggregation = aggregation});
      const auto write = [&](int) { w.rank == 0 ? v.assign(ones({2})) : v.assign_add(ones({2})); };
      expect_error<FailedPrecondition>(
          {"variable.assign of variable \"w\",", "float32[2] on worker 0",
           "variable.assign_add of variable \"w\",", "float32[2] on worker 1"},
          [&] { w.group.run(write); });
      EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{0, 0}));
    });
  }
}

// A number for each replica of the job.
Tensor own_value(const Worker& w, int replica) {
  const int id = w.rank * w.group.size() + replica;
  return (arange(7, kFloat32) * 0.37 + id).sin() * 100;
}

TEST(WorkerVariables, SyncOnReadReadsCountAllReplicas) {
  for (const int replicas : {1, 2}) {
    play(2, replicas, [&](Worker& w) {
      const auto made = [&](Aggregation aggregation) {
        return w.make(zeros({}),
                      {.synchronization = Synchronization::kOnRead, .aggregation = aggregation});
      };
      const Variable sum = made(Aggregation::kSum);
      const Variable mean = made(Aggregation::kMean);
      const Variable first = made(Aggregation::kOnlyFirstReplica);
      w.group.run([&](int r) {
        const double id = w.rank * replicas + r + 1.0;
        for (const Variable& v : {sum, mean, first}) v.assign_add(scalar(id));
        EXPECT_EQ(sum.value().item<double>(), id);  // in a replica its own
      });
      const int all = 2 * replicas;
      EXPECT_EQ(sum.value().item<double>(), all * (all + 1) / 2.0);
      EXPECT_EQ(mean.value().item<double>(), (all + 1) / 2.0);
      EXPECT_EQ(first.value().item<double>(), 1);
    });
  }
}

// What `write` makes of a variable, on all workers the same.
template <class Write>
std::vector<float> written(int workers, int replicas, Aggregation aggregation, const Write& write) {
  std::vector<std::vector<float>> got(static_cast<std::size_t>(workers));
  play(workers, replicas, [&](Worker& w) {
    const Variable v = w.make(ones({7}), {.trainable = false, .aggregation = aggregation});
    w.group.run([&](int r) { write(w, v, r); });
    for (const Variable& one : v.components()) {
      EXPECT_TRUE(one.value().equal(v.value()));
    }
    got[static_cast<std::size_t>(w.rank)] = to_vector<float>(v.value());
  });
  for (const auto& one : got) EXPECT_EQ(one, got[0]);
  return got[0];
}

TEST(WorkerVariables, WritesInARunAreAggregatedOverAllReplicas) {
  const auto add = [](const Worker& w, const Variable& v, int r) { v.assign_add(own_value(w, r)); };
  for (const Aggregation aggregation :
       {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto one_process = written(1, 3, aggregation, add);
    EXPECT_EQ(written(3, 1, aggregation, add), one_process);
    const auto four = written(1, 4, aggregation, add);
    const auto two_of_two = written(2, 2, aggregation, add);
    for (std::size_t i = 0; i < four.size(); ++i) EXPECT_NEAR(two_of_two[i], four[i], 1e-4);
  }
}

// What is one value on each replica of one worker is none on the other.
TEST(WorkerVariables, AMeanCountsEveryReplicaWhateverItsWorkerBrings) {
  const auto number = [](const Worker& w, const Variable& v, int r) {
    v.assign(w.rank == 1 && r == 0 ? 0.5 : 1.0);
  };
  EXPECT_EQ(written(2, 2, Aggregation::kMean, number), std::vector<float>(7, 0.875));
  const Tensor captured = ones({7});
  const auto tensor = [&](const Worker& w, const Variable& v, int r) {
    v.assign(w.rank == 0 ? captured : full({7}, r == 0 ? 0.5 : 1.0));
  };
  EXPECT_EQ(written(2, 2, Aggregation::kMean, tensor), std::vector<float>(7, 0.875));
  const Tensor rows = arange(7, kInt64);
  const auto slices = [&](const Worker& w, const Variable& v, int r) {
    v.scatter_add({.values = w.rank == 0 ? captured : full({7}, r == 0 ? 0.5 : 1.0),
                   .indices = rows,
                   .dense_shape = {7}});
  };
  EXPECT_EQ(written(2, 2, Aggregation::kMean, slices), std::vector<float>(7, 1.875));
}

// What each worker has where worker 1 fails behind its write, while worker 0 is late.
template <class Write>
std::vector<Tensor> written_by_late_ones(int replicas, Aggregation aggregation,
                                         const Write& write) {
  std::vector<Tensor> got(2);
  collectives::ThreadJob job(2);
  testing::LateRank late(job);
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    const auto errors = job.try_run([&](collectives::Communicator& c) {
      Worker w(replicas, job.share(c.rank()));
      const Variable v = w.make(ones({7}), {.trainable = false, .aggregation = aggregation});
      try {
        w.group.run([&](int r) {
          write(w, v, r);
          if (c.rank() == 1) throw DataLoss("[step] behind the write");
        });
      } catch (const Error&) {
        c.abort(std::current_exception(), "step");
      }
      if (c.rank() == 1) late.other_has_ended();
      got[static_cast<std::size_t>(c.rank())] = v.components().at(0).value().clone();
    });
    for (const std::exception_ptr& error : errors) EXPECT_EQ(error, nullptr);
  });
  return got;
}

TEST(WorkerVariables, AWriteInARunIsMadeByAllWorkersOrByNone) {
  const auto add = [](const Worker& w, const Variable& v, int r) { v.assign_add(own_value(w, r)); };
  const auto scatter = [](const Worker& w, const Variable& v, int r) {
    v.scatter_add({.values = own_value(w, r), .indices = arange(7, kInt64), .dense_shape = {7}});
  };
  for (const int replicas : {1, 2}) {
    for (const Aggregation aggregation :
         {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
      const auto added = written_by_late_ones(replicas, aggregation, add);
      EXPECT_TRUE(added[0].equal(added[1])) << added[0] << added[1];
      const auto scattered = written_by_late_ones(replicas, aggregation, scatter);
      EXPECT_TRUE(scattered[0].equal(scattered[1])) << scattered[0] << scattered[1];
    }
  }
}

TEST(WorkerVariables, OneNumberForAllIsNoSum) {
  const auto number = [](const Worker&, const Variable& v, int) { v.assign(3.0); };
  EXPECT_EQ(written(2, 1, Aggregation::kMean, number), std::vector<float>(7, 3));
  play(2, 1, [](Worker& w) {
    const Variable v = w.make(ones({7}), {.trainable = false, .aggregation = Aggregation::kSum});
    EXPECT_THROW(w.group.run([&](int) { v.assign(3.0); }), InvalidArgument);
  });
}

TEST(WorkerVariables, ScattersInARunJoinTheRowsOfAll) {
  const auto scatter = [](const Worker& w, const Variable& v, int r) {
    const int id = w.rank * w.group.size() + r;
    // Another number of rows for each.
    v.scatter_add({.values = full({id + 1}, 10.0 * (id + 1)),
                   .indices = arange(id + 1, kInt64),
                   .dense_shape = {7}});
  };
  for (const Aggregation aggregation :
       {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto one_process = written(1, 4, aggregation, scatter);
    EXPECT_EQ(written(4, 1, aggregation, scatter), one_process);
    EXPECT_EQ(written(2, 2, aggregation, scatter), one_process);
  }
}

// What optimizers and local_results() write and read: no other worker is asked or changed.
TEST(WorkerVariables, AComponentIsOfItsReplicaAlone) {
  for (const Aggregation aggregation : {Aggregation::kNone, Aggregation::kSum, Aggregation::kMean,
                                        Aggregation::kOnlyFirstReplica}) {
    play(3, 1, [&](Worker& w) {
      const Variable v = w.make(ones({2}), {.aggregation = aggregation});
      const Variable own = v.components().at(0);
      w.group.run([&](int) { own.assign_add(full({2}, w.rank + 0.1)); });
      EXPECT_EQ(own.value().min().item<float>(), 1 + (static_cast<float>(w.rank) + 0.1F));
      const Variable statistic = w.make(
          zeros({}), {.synchronization = Synchronization::kOnRead, .aggregation = aggregation});
      if (w.rank == 2) statistic.components().at(0).assign(5.0);
      EXPECT_EQ(statistic.components().at(0).value().item<float>(), w.rank == 2 ? 5 : 0);
    });
  }
}

TEST(WorkerVariables, WritesOfDifferentVariablesAreAnError) {
  play(2, 1, [](Worker& w) {
    const VariableOptions options{.trainable = false, .aggregation = Aggregation::kMean};
    const Variable a = w.make(ones({2}), [&] {
      auto o = options;
      o.name = "a";
      return o;
    }());
    const Variable b = w.make(ones({2}), [&] {
      auto o = options;
      o.name = "b";
      return o;
    }());
    expect_error<FailedPrecondition>({"\"a\", float32[2] for a mean on worker 0", "\"b\""}, [&] {
      w.group.run([&](int) { (w.rank == 0 ? a : b).assign(full({2}, w.rank)); });
    });
    EXPECT_EQ(to_vector<float>(a.value()), (std::vector<float>{1, 1}));
  });
}

}  // namespace
}  // namespace cohort::internal::variables
