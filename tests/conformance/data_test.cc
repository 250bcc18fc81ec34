// SPDX-License-Identifier: Apache-2.0
//
// Batches split over replicas, and packs of gradients: D03 to D30.
#include "cohort/cross_device_ops/packing.h"
#include "cohort/data/dataset.h"
#include "cohort/data/input_context.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

// Each step's parts of the distributed dataset, through f.
template <class F>
auto steps(const Trial& t, const Dataset& batches, F f) {
  std::vector<decltype(t.strategy.run(f, PerReplica<Element>()))> out;
  for (const auto& batch : t.strategy.distribute_dataset(batches)) {
    out.push_back(t.strategy.run(f, batch));
  }
  return out;
}

Tensor itself(const Tensor& x) { return x; }

CONFORMANCE(D03_FewerRowsThanReplicas) {
  const auto rows = [](const Tensor& x) { return x.size(0); };
  return show(steps(t, Dataset::range(2).batch(2), rows));
}

CONFORMANCE(D04_BatchesBecomeReplicaBatches) {
  std::vector<Tensor> stream;
  for (const auto& step : steps(t, Dataset::range(5).batch(4), itself)) {
    for (const Tensor& part : step) {
      if (part.size(0) > 0) stream.push_back(part);
    }
  }
  return show(stream);
}

CONFORMANCE(D05_ThePartialBatch) { return show(steps(t, Dataset::range(10).batch(4), itself)); }

CONFORMANCE(D06_ThePartialBatchFillsReplicaZero) {
  return show(steps(t, Dataset::range(10).batch(4), itself).back());
}

CONFORMANCE(D07_AReplicaWithoutRows) {
  return show(steps(t, Dataset::range(9).batch(4), itself).back());
}

CONFORMANCE(D09_MeansOfUnevenParts) {
  const auto look = [](const Tensor& x) { return std::tuple(x, x.mean(), x.size(0)); };
  const auto [rows, means, sizes] =
      steps(t, Dataset::from_tensor_slices(tensor({5, 6, 7})).batch(4), look).front();
  return show(means, sizes, t.strategy.reduce(ReduceOp::kMean, rows, 0));
}

CONFORMANCE(D10_OneRowForTwoReplicas) {
  return show(steps(t, Dataset::from_tensor_slices(tensor({5})).batch(2), itself));
}

CONFORMANCE(D11_AFunctionOfEachPart) {
  return show(steps(t, Dataset::range(4).batch(2), [](const Tensor& x) { return x * 2; }));
}

CONFORMANCE(D12_NotBatched) {
  return show(outcome([&] { t.strategy.distribute_dataset(Dataset::range(4)); }));
}

CONFORMANCE(D25_RowsPerReplica) {
  const InputContext context{.num_replicas_in_sync = 6};
  return show(context.get_per_replica_batch_size(12),
              outcome([&] { return context.get_per_replica_batch_size(13); }));
}

CONFORMANCE(D27_OnePipelineCannotBeReplicated) {
  return show(outcome([&] {
    t.strategy.distribute_dataset(Dataset::range(4).batch(2),
                                  {.replication_mode = InputReplicationMode::kPerReplica});
  }));
}

CONFORMANCE(D29_NegativeNumbersOfPacks) {
  const PerReplica<Gradient> value({Gradient(scalar(1))});
  return show(outcome([] { NcclAllReduce(-1); }), outcome([&] {
                ReductionToOneDevice().reduce(ReduceOp::kSum, value, Device("CPU:0"),
                                              {.bytes_per_pack = -1});
              }));
}

CONFORMANCE(D30_SizesOfPacks) {
  const Packer packer = Packer::concat_and_split({7, 3}, 3);
  std::vector<int64_t> sizes;
  for (std::size_t i = 0; i < packer.packs().size(); ++i) sizes.push_back(packer.size(i));
  return show(sizes);
}

}  // namespace
}  // namespace cohort::conformance
