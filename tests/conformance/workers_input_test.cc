// SPDX-License-Identifier: Apache-2.0
//
// What several workers read, each its part: D01 to D26. The workers are strategies of one process.
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/auto_shard.h"
#include "cohort/data/test_files.h"
#include "cohort/strategy/test_workers.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

using testing::Workers;
using Steps = std::vector<PerReplica<Tensor>>;

Dataset with_policy(const Dataset& dataset, AutoShardPolicy policy) {
  return dataset.with_options({.auto_shard_policy = policy});
}

Steps steps_of(const DistributedDataset& dist) {
  return dist.reduce(Steps(), [](Steps steps, const PerReplica<Element>& batch) {
    steps.push_back(batch.map([](const Element& part) { return part.tensor(); }));
    return steps;
  });
}

/// Each worker's steps of the dataset.
std::vector<Steps> distribute(const Workers& workers, const Dataset& dataset) {
  return workers.run(
      [&](const Strategy& strategy) { return steps_of(strategy.distribute_dataset(dataset)); });
}

/// Each worker's step `number`, of one replica.
std::vector<Tensor> step_of_one(const std::vector<Steps>& all, std::size_t number) {
  std::vector<Tensor> out;
  for (const Steps& steps : all) out.push_back(steps.at(number)[0]);
  return out;
}

/// Text files 0, 1, ..., each with its number as the only line.
class NumberedFiles : private testing::FilesTest {
 public:
  explicit NumberedFiles(int count) {
    for (int i = 0; i < count; ++i) {
      files_.push_back(write("file" + std::to_string(i), std::to_string(i)));
    }
  }
  Dataset lines() const {
    return Dataset::text_lines(files_).map([](const std::string& line) { return std::stoi(line); });
  }

 private:
  void TestBody() override {}
  std::vector<std::string> files_;
};

/// The numbers that one of the workers reads.
std::vector<int64_t> numbers_of(const Workers& workers, const Dataset& dataset,
                                std::size_t worker) {
  std::vector<int64_t> out;
  const std::vector<Steps> all = distribute(workers, dataset);
  for (const auto& step : all[worker]) {
    for (int64_t x : to_vector<int64_t>(step[0].to(kInt64))) out.push_back(x);
  }
  return out;
}

CONFORMANCE(D01_SizesOfTwoWorkers) {
  const auto ds = with_policy(Dataset::range(7).batch(7), AutoShardPolicy::kOff);
  std::vector<std::vector<int64_t>> sizes;
  for (const Steps& steps : distribute(Workers(2, 2), ds)) {
    sizes.emplace_back();
    for (const auto& step : steps) {
      for (const Tensor& part : step) sizes.back().push_back(part.size(0));
    }
  }
  return show(sizes);
}

CONFORMANCE(D13_ThePartialBatchOfTwoWorkers) {
  const auto ds = with_policy(Dataset::range(14).batch(8), AutoShardPolicy::kData);
  return show(step_of_one(distribute(Workers(2, 1), ds), 1));
}

CONFORMANCE(D15_AWorkerWithoutMoreData) {
  const auto all = Workers(2, 2).run([](const Strategy& strategy) {
    return steps_of(strategy.distribute_datasets_from_function([](const InputContext& c) {
      return Dataset::range(9).batch(2).shard(c.num_input_pipelines, c.input_pipeline_id);
    }));
  });
  return show(all[0], all[1]);
}

CONFORMANCE(D16_SharedByElementsAndNotAtAll) {
  const Workers workers(2, 1);
  const auto first = [&](AutoShardPolicy policy) {
    return step_of_one(distribute(workers, with_policy(Dataset::range(4).batch(2), policy)), 0);
  };
  return show(first(AutoShardPolicy::kData), first(AutoShardPolicy::kOff));
}

CONFORMANCE(D20_FilesOfAWorker) {
  const NumberedFiles files(10);
  const auto ds = with_policy(files.lines().batch(5), AutoShardPolicy::kFile);
  return show(numbers_of(Workers(5, 1), ds, 3));
}

CONFORMANCE(D21_RecordsOfAWorker) {
  const auto ds = with_policy(Dataset::range(10).batch(5), AutoShardPolicy::kData);
  return show(numbers_of(Workers(5, 1), ds, 0));
}

CONFORMANCE(D22_FewerFilesThanWorkers) {
  const NumberedFiles files(2);
  const Workers workers(5, 1);
  const auto ds = with_policy(files.lines().batch(5), AutoShardPolicy::kFile);
  return show(outcome([&] { workers[0].distribute_dataset(ds); }));
}

CONFORMANCE(D24_AHintThatNothingReplaced) {
  const auto ds = Dataset::range(100).shard(kShardHint, 0);
  return show(outcome([&] { ds.make_iterator(); }));
}

CONFORMANCE(D26_PipelinesOfThreeWorkers) {
  const Workers workers(3, 2);
  std::vector<int> seen;
  workers[1].distribute_datasets_from_function([&](const InputContext& c) {
    seen = {c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync};
    return Dataset::range(4).batch(1);
  });
  return show(seen);
}

}  // namespace
}  // namespace cohort::conformance
