// SPDX-License-Identifier: Apache-2.0
//
// Strategies over GPUs: variables, runs, reductions, collectives, input and checkpoints, on one
// logical GPU, on two of one card, and beside a CPU.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"
#include "tests/gpu/gpu_fixture.h"

namespace cohort::gpu_tests {
namespace {

using Numbers = std::vector<double>;
constexpr auto kOnRead = Synchronization::kOnRead;

class GpuStrategy : public GpuTest {};

int replica() { return get_replica_context().replica_id_in_sync_group(); }
Numbers numbers(const Tensor& t) { return to_vector<double>(t); }

void expect_near(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
  const Numbers g = numbers(got), w = numbers(want);
  ASSERT_EQ(g.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(g[i], w[i], tolerance * std::max(1.0, std::abs(w[i]))) << "element " << i;
  }
}

struct Kind {
  const char* name;
  Strategy (*make)();
};
const Kind kKinds[] = {
    {"OneDevice", [] { return Strategy(OneDeviceStrategy("GPU:0")); }},
    {"SecondDevice", [] { return Strategy(OneDeviceStrategy("GPU:1")); }},
    {"Mirrored",
     [] {
       return Strategy(MirroredStrategy({"GPU:0", "GPU:1"}));
     }},
    {"Central",
     [] {
       return Strategy(CentralStorageStrategy({.compute_devices = {"GPU:0", "GPU:1"}}));
     }},
    {"CpuAndGpu",
     [] {
       return Strategy(MirroredStrategy({"CPU:0", "GPU:0"}));
     }},
    {"GpuAndCpu",
     [] {
       return Strategy(MirroredStrategy({"GPU:1", "CPU:0"}));
     }},
};

class EveryGpuStrategy : public GpuTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) strategy_.emplace_back(GetParam().make());
  }
  const Strategy& strategy() const { return strategy_.front(); }
  int replicas() const { return strategy().num_replicas_in_sync(); }
  /// Whether a replica's tensors are on a GPU.
  bool on_gpu(int r) const {
    return strategy().extended().worker_devices()[static_cast<std::size_t>(r)].kind() ==
           DeviceKind::kGpu;
  }

 private:
  std::vector<Strategy> strategy_;  // one, made where there is a GPU
};
INSTANTIATE_TEST_SUITE_P(Of, EveryGpuStrategy, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(GpuStrategy, TakesAllGpusByDefault) {
  const std::vector<Device> gpus = list_devices(DeviceKind::kGpu);
  EXPECT_EQ(MirroredStrategy().extended().worker_devices(), gpus);
  EXPECT_EQ(MultiWorkerMirroredStrategy().extended().worker_devices(), gpus);
  const CentralStorageStrategy central({.compute_devices = {"GPU:0", "GPU:1"}});
  EXPECT_EQ(central.extended().parameter_devices(), std::vector<Device>{"GPU:0"});
  testing::expect_error<InvalidArgument>({"[OneDeviceStrategy] expected one of GPU:0 ... GPU:"},
                                         [] { OneDeviceStrategy("GPU:99"); });
  testing::expect_error<Unimplemented>({"share the memory of the parameter device CPU:0"}, [] {
    CentralStorageStrategy({.compute_devices = {"GPU:0"}, .parameter_device = "CPU:0"});
  });
}

TEST_P(EveryGpuStrategy, VariablesAreOnTheirReplicasDevices) {
  const auto scope = strategy().scope();
  const Variable w(tensor({1, 2, 3}), {.name = "w"});
  const Variable count(zeros({}, kInt64), {.trainable = false});
  const Variable half(ones({2}, kBFloat16), {.trainable = false});
  const Variable flag(zeros({2}, kBool));
  for (const Variable& v : {w, count, half, flag}) {
    for (const Variable& part : v.components()) {
      EXPECT_EQ(part.value().is_cuda(), part.device().kind() == DeviceKind::kGpu)
          << v.name() << " on " << part.device();
    }
  }
  const auto there = strategy().run([&] { return w.value().is_cuda(); });
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(there[static_cast<std::size_t>(r)], on_gpu(r));
  EXPECT_EQ(numbers(w.value()), (Numbers{1, 2, 3}));
  EXPECT_EQ(w.value().scalar_type(), kFloat32);
  flag.assign(ones({2}, kBool));
  EXPECT_EQ(numbers(flag.value()), (Numbers{1, 1}));
  half.assign_add(0.5);
  EXPECT_EQ(numbers(half.value()), (Numbers{1.5, 1.5}));
}

TEST_P(EveryGpuStrategy, WritesTakeTensorsOfTheHostAndNumbers) {
  const auto scope = strategy().scope();
  const Variable w(zeros({2}));
  w.assign(tensor({1, 2}));
  w.assign_add(tensor({10, 20}));
  w.assign_sub(1.0);
  w.assign_add(scalar(0.5));
  w.assign_add(w.value());
  EXPECT_EQ(numbers(w.value()), (Numbers{21, 43}));
  for (const Variable& part : w.components()) EXPECT_EQ(numbers(part.value()), (Numbers{21, 43}));
  w.assign(7.0);
  EXPECT_EQ(numbers(w.value()), (Numbers{7, 7}));
  const Variable integer(zeros({}, kInt64), {.trainable = false});
  integer.assign_add(3);
  integer.assign_add(tensor({2}, kInt64).sum());
  EXPECT_EQ(integer.value().item<int64_t>(), 5);
  const Variable big(zeros({2}, DType::UInt32), {.trainable = false});
  big.assign(tensor({5, 6}, kInt64).to(DType::UInt32));
  EXPECT_EQ(numbers(big.value().to(kInt64)), (Numbers{5, 6}));
}

TEST_P(EveryGpuStrategy, ReplicasWriteTogether) {
  const auto scope = strategy().scope();
  const Variable sum(zeros({2}), {.aggregation = Aggregation::kSum});
  const Variable mean(zeros({2}), {.aggregation = Aggregation::kMean});
  const Variable first(zeros({}), {.aggregation = Aggregation::kOnlyFirstReplica});
  const Variable total(zeros({}, kFloat64),
                       {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  const Variable average(zeros({2}),
                         {.synchronization = kOnRead, .aggregation = Aggregation::kMean});
  for (int step = 0; step < 3; ++step) {
    strategy().run([&] {
      sum.assign_add(full({2}, replica() + 1));
      mean.assign_add(full({2}, 2.0 * replica() + 1));
      first.assign_add(scalar(replica() + 1));
      total.assign_add(scalar(replica() + 1, kFloat64));
      average.assign_add(full({2}, replica() + 1));
    });
  }
  const double n = replicas();
  const double ids = n * (n + 1) / 2;
  EXPECT_EQ(numbers(sum.value()), Numbers(2, 3 * ids));
  EXPECT_EQ(numbers(mean.value()), Numbers(2, 3 * n));
  EXPECT_EQ(numbers(first.value()), Numbers(1, 3));
  EXPECT_EQ(numbers(total.value()), Numbers(1, 3 * ids));
  EXPECT_EQ(numbers(average.value()), Numbers(2, 3 * ids / n));
  total.assign(10.0);
  EXPECT_EQ(numbers(total.value()), Numbers{10});
  for (const Variable& v : {sum, mean, first}) {
    for (const Variable& part : v.components())
      EXPECT_EQ(numbers(part.value()), numbers(v.value()));
  }
}

TEST_P(EveryGpuStrategy, RowsAreReadByIndicesOfHostAndDevice) {
  const auto scope = strategy().scope();
  const Variable table(arange(8, kFloat32).reshape({4, 2}));
  EXPECT_EQ(numbers(table.sparse_read(tensor({3, 0}, kInt64))), (Numbers{6, 7, 0, 1}));
  const auto rows = strategy().run(
      [&](const Tensor& ids) {
        EXPECT_EQ(ids.is_cuda(), on_gpu(replica()));
        return table.sparse_read(ids);
      },
      tensor({1, 2}, kInt32));
  for (const Tensor& each : rows) EXPECT_EQ(numbers(each), (Numbers{2, 3, 4, 5}));
}

TEST_P(EveryGpuStrategy, ArgumentsArriveOnTheReplicasDevice) {
  const Tensor plain = tensor({1, 2});
  std::vector<Tensor> each;
  for (int r = 0; r < replicas(); ++r) each.push_back(full({2}, r));
  const std::map<std::string, Tensor> named = {{"z", tensor({5, 5})}};
  const auto out = strategy().run(
      [&](const Tensor& x, const Tensor& mine, const std::pair<Tensor, double>& pair,
          const std::map<std::string, Tensor>& map) {
        for (const Tensor& t : {x, mine, pair.first, map.at("z")}) {
          EXPECT_EQ(t.is_cuda(), on_gpu(replica()));
        }
        return x + mine * pair.second + pair.first + map.at("z");
      },
      plain, PerReplica<Tensor>(each), std::pair(plain, 2.0), named);
  for (int r = 0; r < replicas(); ++r) {
    const Tensor& one = out[static_cast<std::size_t>(r)];
    EXPECT_EQ(one.is_cuda(), on_gpu(r)) << "results stay where they are";
    EXPECT_EQ(numbers(one), (Numbers{7 + 2.0 * r, 9 + 2.0 * r}));
  }
}

TEST_P(EveryGpuStrategy, ReducesAndGathersOntoTheHost) {
  const auto out =
      strategy().run([](const Tensor& x) { return x * (replica() + 1); }, tensor({1, 2, 3}));
  const double ids = replicas() * (replicas() + 1) / 2.0;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
    const double by = op == ReduceOp::kSum ? ids : ids / replicas();
    const Tensor all = strategy().reduce(op, out);
    EXPECT_TRUE(all.is_cpu());
    EXPECT_EQ(numbers(all), (Numbers{by, 2 * by, 3 * by}));
    EXPECT_TRUE(strategy().reduce(op, out, 0).is_cpu());
  }
  EXPECT_EQ(numbers(strategy().reduce(ReduceOp::kSum, out, 0)), Numbers{6 * ids});
  EXPECT_EQ(numbers(strategy().reduce(ReduceOp::kMax, out)),
            (Numbers{1.0 * replicas(), 2.0 * replicas(), 3.0 * replicas()}));
  const Tensor joined = strategy().gather(out, 0);
  EXPECT_TRUE(joined.is_cpu());
  EXPECT_EQ(joined.size(0), 3 * replicas());
}

TEST_P(EveryGpuStrategy, CollectivesAddInReplicaOrder) {
  // Small ones, which each replica adds for itself, and large ones, which they share out.
  for (const int64_t size : {5, 100003}) {
    const Tensor like = arange(size, kFloat32).mul(0.001).sin();
    const auto out = strategy().run(
        [](const Tensor& x) {
          const auto context = get_replica_context();
          const Tensor mine = x * (1 + 0.37 * replica());
          const Tensor sum = context.all_reduce(ReduceOp::kSum, mine);
          const Tensor mean = context.all_reduce(ReduceOp::kMean, mine);
          const auto two = context.all_reduce(ReduceOp::kMax, std::pair(mine, 1.0 * replica()));
          const Tensor all = context.all_gather(mine.narrow(0, 0, 2 + replica()), 0);
          return std::vector<Tensor>{sum, mean, two.first, all, sum * 1};
        },
        like);
    Tensor want = like;
    for (int r = 1; r < replicas(); ++r) want = want + like * (1 + 0.37 * r);
    for (const auto& got : out) {
      expect_near(got[0], want, 1e-6);
      expect_near(got[1], want / replicas(), 1e-6);
      EXPECT_EQ(numbers(got[0]), numbers(out[0][0])) << "all replicas have the same bits";
      EXPECT_EQ(got[3].size(0), replicas() == 1 ? 2 : 5);
      EXPECT_EQ(numbers(got[4]), numbers(got[0]));
    }
  }
}

TEST_P(EveryGpuStrategy, MergeCallsSeeAllReplicasTensors) {
  const auto out = strategy().run(
      [](const Tensor& x) {
        Tensor sum;
        for (int i = 0; i < 50; ++i) {
          sum = get_replica_context().merge_call(
              [](Strategy& s, const PerReplica<Tensor>& all) {
                return s.reduce(ReduceOp::kSum, all);
              },
              x * (replica() + 1) + i);
        }
        return sum;
      },
      ones({1000}));
  const double ids = replicas() * (replicas() + 1) / 2.0;
  for (const Tensor& sum : out) {
    EXPECT_EQ(numbers(sum.to(c10::kCPU).narrow(0, 0, 1)), Numbers{ids + 49.0 * replicas()});
  }
}

// y = x w + b, by least squares.
struct Line {
  explicit Line(const Strategy& strategy, double rate = 0.05) : strategy_(strategy) {
    const auto scope = strategy_.scope();
    w = Variable(tensor({0.5, -0.25, 0.125}).reshape({3, 1}), {.name = "w"});
    b = Variable(zeros({1}), {.name = "b"});
    optimizer = keras::Adam({.learning_rate = rate});
  }
  Tensor step(const Tensor& x, const Tensor& y, int64_t rows) const {
    GradientTape tape;
    const Tensor difference = x.matmul(w) + b - y;
    const Tensor loss = (difference * difference).sum() / static_cast<double>(rows);
    optimizer.apply_gradients(tape.gradient(loss, {w, b}));
    return loss.detach();
  }
  /// Losses of the steps.
  Numbers train(int epochs) const {
    const Tensor x = arange(36, kFloat32).mul(0.7).sin().reshape({12, 3});
    const Tensor y = x.sum(1, /*keepdim=*/true) * 0.5 + 0.25;
    const auto data = strategy_.distribute_dataset(Dataset::from_tensor_slices({x, y}).batch(4));
    Numbers losses;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (const auto& [a, c] : data) {
        const auto loss = strategy_.run(
            [&](const Tensor& rows, const Tensor& targets) { return step(rows, targets, 4); }, a,
            c);
        losses.push_back(strategy_.reduce(ReduceOp::kSum, loss).item<double>());
      }
    }
    return losses;
  }
  Variable w, b;
  keras::Optimizer optimizer;

 private:
  Strategy strategy_;
};

TEST_P(EveryGpuStrategy, TrainsAsACpuDoes) {
  const Line cpu{OneDeviceStrategy("CPU:0")};
  const Numbers want = cpu.train(10);
  const Line line(strategy());
  const Numbers got = line.train(10);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(got.back(), got.front());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i;
  expect_near(line.w.value(), cpu.w.value());
  expect_near(line.b.value(), cpu.b.value());
  const Line again(strategy());
  EXPECT_EQ(again.train(10), got) << "the same bits from run to run";
  EXPECT_EQ(numbers(again.w.value()), numbers(line.w.value()));
  for (const Variable& part : line.w.components()) expect_near(part.value(), line.w.value());
}

// Messages carry the host's memory: sums, first values and what is reduced go over it.
TEST_F(GpuStrategy, SeveralWorkersTrainAsOneCpuDoes) {
  const Line cpu{OneDeviceStrategy("CPU:0")};
  const Numbers want = cpu.train(4);
  for (const int replicas : {1, 2}) {
    const testing::Workers workers(2, replicas, {}, nullptr, "GPU:");
    const auto all = workers.run([](const Strategy& strategy) {
      const Line line(strategy);
      Numbers out = line.train(4);
      const auto sum = strategy.run(
          [](const Tensor& x) { return get_replica_context().all_reduce(ReduceOp::kSum, x * 2); },
          ones({3}));
      EXPECT_EQ(numbers(sum[0]), Numbers(3, 2.0 * strategy.num_replicas_in_sync()));
      for (const double x : numbers(line.w.value())) out.push_back(x);
      return out;
    });
    for (const Numbers& one : all) {
      EXPECT_EQ(one, all[0]) << "all workers have the same bits";
      ASSERT_EQ(one.size(), want.size() + 3);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(one[i], want[i], 1e-5) << i;
    }
  }
}

TEST_F(GpuStrategy, BothSchedulesGiveTheSameBitsAndEqualCopies) {
  std::vector<Numbers> all;
  for (const char* schedule : {"sharded", "pull"}) {
    ::setenv("COHORT_UPDATE_SCHEDULE", schedule, 1);
    const MirroredStrategy two({.devices = {"GPU:0", "GPU:1"}, .check_copies = true});
    ::unsetenv("COHORT_UPDATE_SCHEDULE");
    const auto scope = two.scope();
    const Variable large(arange(100000, kFloat32).mul(0.001).sin(), {.name = "large"});
    const keras::Adam adam({.learning_rate = 0.01});
    for (int i = 0; i < 5; ++i) {
      two.run([&] {
        GradientTape tape;
        const Tensor loss = (large * large).sum() * (1.0 + replica());
        adam.apply_gradients(tape.gradient(loss, {large}));
      });
    }
    all.push_back(numbers(large.value()));
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST_P(EveryGpuStrategy, DistributedDatasetsGivePartsOnTheDevice) {
  const auto batches =
      Dataset::from_tensor_slices({arange(40, kFloat32).reshape({20, 2}), arange(20)})
          .shuffle(20, {.seed = 3})
          .batch(8);
  for (const bool fetch : {true, false}) {
    Numbers seen;
    for (const auto& step : strategy().distribute_dataset(batches, {.fetch_to_device = fetch})) {
      for (int r = 0; r < replicas(); ++r) {
        const Tensor& x = step[static_cast<std::size_t>(r)][0].tensor();
        EXPECT_EQ(x.is_cuda(), fetch && on_gpu(r));
      }
      strategy().run(
          [&](const Tensor& x, const Tensor& id) {
            EXPECT_EQ(x.is_cuda(), on_gpu(replica())) << "moved on the way into run";
            EXPECT_EQ(id.size(0), x.size(0));
          },
          step);
      const Tensor ids =
          strategy().gather(step.map([](const Element& e) { return e[1].tensor(); }), 0);
      for (const double id : numbers(ids)) seen.push_back(id);
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, numbers(arange(20))) << "fetch_to_device = " << fetch;
  }
}

TEST_P(EveryGpuStrategy, CheckpointsTravelToCpusAndBack) {
  const cohort::testing::TemporaryFolder folder;
  const auto checkpoint = [](const Line& line) {
    return Checkpoint({{"w", line.w}, {"b", line.b}, {"optimizer", line.optimizer}});
  };
  const Line source(strategy());
  source.train(2);
  checkpoint(source).save(folder / "gpu");
  const Line cpu{MirroredStrategy({"CPU:0", "CPU:1"})};
  cpu.train(1);
  checkpoint(cpu).restore(folder / "gpu").assert_consumed();
  EXPECT_EQ(numbers(cpu.w.value()), numbers(source.w.value()));
  const Numbers want = source.train(2);
  const Numbers got = cpu.train(2);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i;
  checkpoint(cpu).save(folder / "cpu");
  const Line back(strategy());
  back.train(1);  // which makes the optimizer's slots
  checkpoint(back).restore(folder / "cpu").assert_consumed();
  EXPECT_EQ(numbers(back.w.value()), numbers(cpu.w.value()));
  for (const Variable& part : back.w.components()) {
    EXPECT_EQ(numbers(part.value()), numbers(cpu.w.value()));
  }
}

TEST_P(EveryGpuStrategy, WorksAfterAReplicaHasFailed) {
  const auto scope = strategy().scope();
  const Variable v(zeros({2}), {.aggregation = Aggregation::kSum});
  testing::expect_error<Internal>({"on purpose"}, [&] {
    strategy().run([&] {
      v.assign_add(full({2}, 1.0 + replica()));
      if (replica() == replicas() - 1) throw Internal("on purpose");
      get_replica_context().all_reduce(ReduceOp::kSum, v.value());
      get_replica_context().all_reduce(ReduceOp::kSum, v.value());
    });
  });
  v.assign(1.0);
  const auto sum =
      strategy().run([&] { return get_replica_context().all_reduce(ReduceOp::kSum, v.value()); });
  for (const Tensor& one : sum) EXPECT_EQ(numbers(one), Numbers(2, replicas()));
}

TEST_F(GpuStrategy, ChecksCopiesInTheHostsMemory) {
  const MirroredStrategy two({.devices = {"GPU:0", "GPU:1"}, .check_copies = true});
  const auto scope = two.scope();
  const Variable v(zeros({3}), {.name = "v"});
  testing::expect_error<FailedPrecondition>(
      {"\"v\"", "got 0 on replica 0 and 1 on replica 1"},
      [&] { two.run([&] { v.assign(full({3}, replica())); }); });
}

}  // namespace
}  // namespace cohort::gpu_tests
