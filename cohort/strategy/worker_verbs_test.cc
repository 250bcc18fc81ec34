// SPDX-License-Identifier: Apache-2.0
//
// What workers do together: every verb gives each of W workers with L replicas what one worker with
// W x L replicas gets; with L = 1 to the last bit.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/data/core/element.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
using testing::Workers;
using Numbers = std::vector<double>;

struct Layout {
  int workers;
  int local;
};

class WorkerVerbs : public ::testing::TestWithParam<Layout> {
 protected:
  int total() const { return GetParam().workers * GetParam().local; }

  static MirroredStrategy mirrored(int replicas) {
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    return MirroredStrategy(devices);
  }

  /// play(strategy) gives on every worker what it gives where all replicas are in one process.
  template <class Play>
  void expect_as_one_worker(const Play& play) {
    run_with_deadline(std::chrono::seconds(60), [&] {
      const Numbers expected = play(mirrored(total()));
      const Workers workers(GetParam().workers, GetParam().local);
      for (const Numbers& got : workers.run(play)) EXPECT_EQ(got, expected);
    });
  }
  /// The same of what replica `id` returns: body(id).
  template <class Body>
  void expect_as_one_worker_inside(const Body& body) {
    run_with_deadline(std::chrono::seconds(60), [&] {
      const auto play = [&](const Strategy& strategy) {
        const PerReplica<Numbers> got =
            strategy.run([&] { return body(get_replica_context().replica_id_in_sync_group()); });
        return std::vector<Numbers>(got.begin(), got.end());
      };
      const std::vector<Numbers> expected = play(mirrored(total()));
      const Workers workers(GetParam().workers, GetParam().local);
      std::vector<Numbers> joined;
      for (const auto& own : workers.run(play)) joined.insert(joined.end(), own.begin(), own.end());
      EXPECT_EQ(joined, expected);
    });
  }

  /// Of one replica a worker whatever comes; else whole numbers, whose sums need no rounding.
  Tensor value(int id, Shape shape = {5}) const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const Tensor x = arange(count, kFloat64) + 3 * id + 1;
    return (GetParam().local == 1 ? x.sin() * 10 : x).to(kFloat32).reshape(shape);
  }
  template <class F>
  static auto values(const Strategy& strategy, const F& of_id) {
    return strategy.distribute_values_from_function(
        [&](const ValueContext& context) { return of_id(context.replica_id_in_sync_group); });
  }
};

Numbers numbers(const Tensor& t) { return to_vector<double>(t.to(kFloat64)); }
void append(Numbers& to, const Numbers& more) { to.insert(to.end(), more.begin(), more.end()); }

TEST(WorkerVerbNumbers, OfOtherKindsOrReductionsAreRefused) {
  Workers(2, 1).each([](const Strategy& strategy) {
    const bool first = strategy.extended().layout().worker() == 0;
    expect_error<FailedPrecondition>(
        {"a sum of 1 floating numbers of 8 bytes on worker 0", "a sum of 1 integers of 8 bytes"},
        [&] {
          if (first) {
            strategy.reduce(ReduceOp::kSum, 1.0);
          } else {
            strategy.reduce(ReduceOp::kSum, int64_t{1});
          }
        });
    expect_error<FailedPrecondition>({"a mean of", "a sum of"}, [&] {
      strategy.reduce(first ? ReduceOp::kMean : ReduceOp::kSum, 1.0);
    });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, 1.0), 2);
  });
}

TEST_P(WorkerVerbs, ReduceTensorsByEveryOperation) {
  for (const char* op : {"sum", "mean", "min", "max", "product"}) {
    expect_as_one_worker([&](const Strategy& s) {
      return numbers(s.reduce(op, values(s, [&](int id) { return value(id); })));
    });
  }
  expect_as_one_worker([&](const Strategy& s) {
    return numbers(s.reduce("sum", values(s, [](int id) { return full({2}, id, kInt64); })));
  });
}

// Replica 1 has no rows: what it would bring is nothing, not zero.
TEST_P(WorkerVerbs, ReduceAlongAnAxisCountsTheRowsThatAreThere) {
  for (const char* op : {"sum", "mean", "min", "max"}) {
    expect_as_one_worker([&](const Strategy& s) {
      const auto rows = values(s, [&](int id) { return value(id, {id == 1 ? 0 : id + 1, 2}); });
      return numbers(s.reduce(op, rows, 0));
    });
    expect_as_one_worker([&](const Strategy& s) {
      const auto rows =
          values(s, [](int id) { return full({id == 1 ? 0 : id + 1}, id - 5, kInt64); });
      return numbers(s.reduce(op, rows, 0));
    });
  }
}

TEST_P(WorkerVerbs, ReduceNestsAndNumbers) {
  expect_as_one_worker([&](const Strategy& s) {
    using Nest = std::map<std::string, std::pair<Tensor, double>>;
    const auto nests = values(s, [&](int id) {
      return Nest{{"a", {value(id), 0.1 * id}}, {"b", {value(id + 7, {2, 2}), 1.0 / (id + 1)}}};
    });
    Numbers out;
    for (const auto& [name, parts] : s.reduce("mean", nests)) {
      append(out, numbers(parts.first));
      out.push_back(parts.second);
    }
    out.push_back(static_cast<double>(s.reduce("sum", values(s, [](int id) { return id; }))));
    out.push_back(s.reduce("max", values(s, [](int id) { return id == 1; })) ? 1 : 0);
    return out;
  });
}

TEST_P(WorkerVerbs, ReduceIndexedSlicesJoinsTheRowsInReplicaOrder) {
  for (const char* op : {"sum", "mean"}) {
    expect_as_one_worker([&](const Strategy& s) {
      const IndexedSlices rows =
          s.reduce(op, values(s, [&](int id) {
                     return IndexedSlices{.values = value(id, {id % 2 + 1, 3}),
                                          .indices = full({id % 2 + 1}, id, kInt64),
                                          .dense_shape = {9, 3}};
                   }));
      Numbers out = numbers(rows.values);
      append(out, numbers(rows.indices));
      return out;
    });
  }
}

TEST_P(WorkerVerbs, GatherJoinsAlongAnyAxis) {
  expect_as_one_worker([&](const Strategy& s) {
    Numbers out = numbers(s.gather(values(s, [&](int id) { return value(id, {id, 2}); }), 0));
    append(out, numbers(s.gather(values(s, [&](int id) { return value(id, {2, id + 1}); }), -1)));
    return out;
  });
}

TEST_P(WorkerVerbs, ReduceToAndItsBatchReachEveryDestination) {
  expect_as_one_worker([&](const Strategy& s) {
    StrategyExtended& extended = s.extended();
    Numbers out;
    const auto mean = extended.reduce_to("mean", values(s, [&](int id) { return value(id); }),
                                         {"CPU:0", "CPU:1"});
    EXPECT_EQ(mean.size(), 2U);
    EXPECT_FALSE(mean[0].is_alias_of(mean[1]));
    append(out, numbers(mean[1]));
    const auto gradients = [&](const auto& make) {
      return values(s, [&](int id) { return Gradient(make(id)); });
    };
    const ReduceItem items[] = {{gradients([&](int id) { return value(id, {3}); }), {"CPU:0"}},
                                {gradients([&](int id) {
                                   return IndexedSlices{.values = value(id, {1, 2}),
                                                        .indices = full({1}, id, kInt64),
                                                        .dense_shape = {9, 2}};
                                 }),
                                 {"CPU:0"}}};
    const auto sums = extended.batch_reduce_to("sum", items);
    append(out, numbers(sums[0][0].dense()));
    append(out, numbers(sums[1][0].slices().to_dense()));
    return out;
  });
}

TEST_P(WorkerVerbs, AllReduceInReplicas) {
  for (const char* op : {"sum", "mean", "max"}) {
    expect_as_one_worker_inside([&](int id) {
      return numbers(get_replica_context().all_reduce(op, value(id, {700, 3})));
    });
  }
  expect_as_one_worker_inside([&](int id) {
    using Nest = std::tuple<Tensor, Tensor, double, IndexedSlices>;
    const Nest all = get_replica_context().all_reduce(
        "mean", Nest{value(id), value(id + 3, {2, 2}).to(kFloat64), 0.1 * id,
                     IndexedSlices{.values = value(id, {1, 2}),
                                   .indices = full({1}, id, kInt64),
                                   .dense_shape = {9, 2}}});
    Numbers out = numbers(std::get<0>(all));
    append(out, numbers(std::get<1>(all)));
    out.push_back(std::get<2>(all));
    append(out, numbers(std::get<3>(all).values));
    append(out, numbers(std::get<3>(all).indices));
    return out;
  });
}

// Each replica's result is its own to write.
TEST_P(WorkerVerbs, ResultsOfAReplicaAreItsOwn) {
  expect_as_one_worker_inside([&](int id) {
    const ReplicaContext ctx = get_replica_context();
    const Tensor sum = ctx.all_reduce("sum", value(id));
    const Tensor joined = ctx.all_gather(value(id), 0);
    sum.add_(id);
    joined.mul_(id);
    Numbers out = numbers(ctx.all_reduce("sum", sum));
    append(out, numbers(ctx.all_reduce("max", joined)));
    return out;
  });
}

TEST_P(WorkerVerbs, AllGatherInReplicas) {
  expect_as_one_worker_inside([&](int id) {
    const ReplicaContext ctx = get_replica_context();
    Numbers out = numbers(ctx.all_gather(value(id, {id, 2}), 0));
    append(out, numbers(ctx.all_gather(value(id, {2, 1}), 1)));
    return out;
  });
}

TEST_P(WorkerVerbs, CollectivesAreDifferentiable) {
  expect_as_one_worker_inside([&](int id) {
    const ReplicaContext ctx = get_replica_context();
    const Tensor x = value(id).requires_grad_();
    const Tensor w = value(id + 2);
    Tensor loss = (ctx.all_reduce("mean", x) * w).sum() + (ctx.all_reduce("sum", x) * x).sum();
    loss.backward();
    const Tensor y = value(id, {id + 1, 2}).requires_grad_();
    const Tensor all = ctx.all_gather(y, 0);
    (all * (arange(all.numel()).to(kFloat32).reshape(all.sizes()) + id)).sum().backward();
    Numbers out = numbers(x.grad());
    append(out, numbers(y.grad()));
    return out;
  });
}

TEST_P(WorkerVerbs, MergeCallsReduceOverAllWorkers) {
  expect_as_one_worker_inside([&](int id) {
    const Tensor sum = get_replica_context().merge_call(
        [](Strategy& s, const PerReplica<Tensor>& all) { return s.reduce("sum", all); }, value(id));
    return numbers(sum);
  });
}

TEST_P(WorkerVerbs, VariablesAreReducedAndGathered) {
  expect_as_one_worker([&](const Strategy& s) {
    const auto scope = s.scope();
    const Variable on_read(0.0, {.synchronization = Synchronization::kOnRead,
                                 .aggregation = Aggregation::kMean,
                                 .shape = Shape{2}});
    const Variable on_write(2.0);
    s.run([&] { on_read.assign(full({2}, get_replica_context().replica_id_in_sync_group() + 1)); });
    Numbers out = numbers(s.reduce("sum", on_read));
    append(out, numbers(s.gather(on_read, 0)));
    append(out, numbers(s.reduce("mean", on_write)));
    return out;
  });
}

// As TensorFlow: a value that is not distributed is what its worker has.
TEST_P(WorkerVerbs, PlainValuesAreTheirWorkersOwn) {
  const double workers = GetParam().workers;
  const double sum = workers * (workers + 1) / 2;
  run_with_deadline(std::chrono::seconds(60), [&] {
    Workers(GetParam().workers, GetParam().local).each([&](const Strategy& s) {
      const double mine = s.extended().layout().worker() + 1;
      EXPECT_EQ(s.reduce("sum", scalar(mine)).item<double>(), sum);
      EXPECT_EQ(s.reduce("mean", mine), sum / workers);
      EXPECT_EQ(s.gather(full({1}, mine), 0).size(0), GetParam().workers);
      EXPECT_EQ(s.extended().sum_of_workers(GetParam().local), total());
      s.barrier();
    });
  });
}

// A Mirrored value is one value, however many have it.
TEST_P(WorkerVerbs, MirroredValuesAreNotSummed) {
  run_with_deadline(std::chrono::seconds(60), [&] {
    Workers(GetParam().workers, GetParam().local).each([&](const Strategy& s) {
      const Mirrored<Tensor> same = s.extended().broadcast_to(scalar(3), {"CPU:0"});
      EXPECT_EQ(s.reduce("mean", same).item<double>(), 3);
      expect_error<InvalidArgument>({"[strategy.reduce]", "the same on each of"},
                                    [&] { s.reduce("sum", same); });
      const auto scope = s.scope();
      expect_error<InvalidArgument>({"[strategy.reduce]"},
                                    [&] { s.reduce("sum", Variable(1.0, {.name = "v"})); });
    });
  });
}

// A single replica, too: two threads' runs never come between each other's collectives.
TEST_P(WorkerVerbs, RunsOfSeveralThreadsTakeTurns) {
  run_with_deadline(std::chrono::seconds(60), [&] {
    const Workers workers(GetParam().workers, GetParam().local);
    workers.each([&](const Strategy& s) {
      std::atomic<int> inside = 0;
      const auto work = [&] {
        for (int i = 0; i < 20; ++i) {
          s.run([&] {
            const bool leads = current_replica() == 0;
            EXPECT_EQ(leads ? ++inside : 1, 1);
            const ReplicaContext ctx = get_replica_context();
            for (int step = 1; step < 4; ++step) {
              EXPECT_EQ(ctx.all_reduce("sum", scalar(step)).item<double>(), step * total());
            }
            if (leads) --inside;
          });
        }
      };
      const std::jthread other(work);
      work();
    });
  });
}

// Batches of data as they are, not tensors alone; of every replica another number of rows.
TEST_P(WorkerVerbs, GatherStringsAndRowsOfUnlikeLengths) {
  using data::Element;
  const auto text = [](const Element& element) {
    std::ostringstream out;
    out << element;
    return out.str();
  };
  const auto play = [&](const Strategy& s) {
    const auto words = values(s, [](int id) {
      std::vector<std::string> out;
      for (int i = 0; i <= id; ++i) out.push_back("word " + std::to_string(10 * id + i));
      return Element(out);
    });
    const auto rows = values(s, [&](int id) {
      const std::vector<int64_t> splits = {0, id, id, id + 2};
      return Element::named(
          {{"rows", Element::ragged(value(id, {id + 2, 3}), from_vector(splits, {4}))},
           {"label", Element(value(id, {3}))}});
    });
    return text(s.gather(words, 0)) + text(s.gather(rows, 0));
  };
  run_with_deadline(std::chrono::seconds(60), [&] {
    const std::string expected = play(mirrored(total()));
    EXPECT_NE(expected.find("word 11"), std::string::npos) << expected;
    const Workers workers(GetParam().workers, GetParam().local);
    for (const std::string& got : workers.run(play)) EXPECT_EQ(got, expected);
  });
}

// A sum that can be told from every other.
class TwiceTheSum final : public CrossDeviceOps {
 public:
  std::atomic<int> calls{0};

 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override {
    ++calls;
    std::vector<Gradient> out;
    for (const Gradient& one : plain_.reduce(op, value, to, options)) {
      out.emplace_back(one.dense() * 2);
    }
    return Mirrored<Gradient>(std::move(out));
  }

 private:
  ReductionToOneDevice plain_;
};

// The program's own ops reduce what is in a worker; workers are added up as always.
TEST_P(WorkerVerbs, OpsOfTheProgramReduceWithinAWorker) {
  if (GetParam().local == 1) return;  // ops are not asked for one value
  const auto ops = std::make_shared<TwiceTheSum>();
  run_with_deadline(std::chrono::seconds(60), [&] {
    const Workers workers(GetParam().workers, GetParam().local, {}, ops);
    workers.each([&](const Strategy& s) {
      const auto ids = values(s, [](int id) { return full({3}, id + 1); });
      const Numbers twice(3, total() * (total() + 1));
      EXPECT_EQ(numbers(s.reduce("sum", ids)), twice);
      EXPECT_EQ(numbers(s.extended().reduce_to("sum", ids, "CPU:0").local()), twice);
      const Numbers mean(3, total() + 1);
      EXPECT_EQ(numbers(s.reduce("mean", ids)), mean);
      expect_error<InvalidArgument>({"mean"}, [&] {
        s.reduce("mean", values(s, [](int id) { return full({1}, id, kInt64); }));
      });
      s.run([&] {
        const ReplicaContext ctx = get_replica_context();
        const int id = ctx.replica_id_in_sync_group();
        EXPECT_EQ(numbers(ctx.all_reduce("sum", full({3}, id + 1))), twice);
        EXPECT_EQ(numbers(ctx.all_reduce("mean", full({3}, id + 1))), mean);
        EXPECT_EQ(ctx.all_reduce("sum", id + 1) * 2, twice[0]) << "numbers are not the ops'";
      });
    });
  });
  EXPECT_GT(ops->calls, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkerVerbs,
                         ::testing::Values(Layout{2, 1}, Layout{3, 1}, Layout{2, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.workers) + "x" +
                                  std::to_string(test.param.local);
                         });

}  // namespace
}  // namespace cohort
