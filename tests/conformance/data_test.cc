// SPDX-License-Identifier: Apache-2.0
//
// Batches split over replicas, and packs of gradients: D03 to D32.
#include "cohort/cross_device_ops/packing.h"
#include "cohort/data/core/input_context.h"
#include "cohort/data/dataset.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

// Each step's parts, through f.
template <class F>
auto steps(const Trial& t, const DistributedDataset& dist, F f) {
  std::vector<decltype(t.strategy.run(f, PerReplica<Element>()))> out;
  for (const auto& batch : dist) out.push_back(t.strategy.run(f, batch));
  return out;
}
template <class F>
auto steps(const Trial& t, const Dataset& batches, F f) {
  return steps(t, t.strategy.distribute_dataset(batches), f);
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
  const auto ds =
      Dataset::range(10).batch(4).with_options({.auto_shard_policy = AutoShardPolicy::kOff});
  return show(steps(t, ds, itself).back());
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

CONFORMANCE(D17_FromAFunctionWithoutTheRemainder) {
  const auto dist = t.strategy.distribute_datasets_from_function(
      [](const InputContext&) { return Dataset::range(9).batch(2, {.drop_remainder = true}); });
  return show(steps(t, dist, itself));
}

CONFORMANCE(D18_FromAFunctionWithTheRemainder) {
  const auto dist = t.strategy.distribute_datasets_from_function(
      [](const InputContext&) { return Dataset::range(9).batch(2); });
  return show(steps(t, dist, itself));
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

CONFORMANCE(D28_PlacingADatasetOnADevice) {
  const auto place = [&](const InputOptions& options) {
    return outcome([&] {
      t.strategy.distribute_datasets_from_function(
          [](const InputContext&) { return Dataset::range(4).batch(2); }, options);
    });
  };
  return show(place({.fetch_to_device = false, .place_dataset_on_device = true}),
              place({.fetch_to_device = true,
                     .replication_mode = InputReplicationMode::kPerReplica,
                     .place_dataset_on_device = true}),
              place({.fetch_to_device = false,
                     .replication_mode = InputReplicationMode::kPerReplica,
                     .place_dataset_on_device = true}));
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

CONFORMANCE(D31_APartialBatchInMidStream) {
  const auto ds = Dataset::range(5).batch(4).repeat(2).with_options(
      {.auto_shard_policy = AutoShardPolicy::kOff});
  return show(steps(t, ds, itself));
}

CONFORMANCE(D32_RaggedRows) {
  const Element rows = Element::ragged(arange(7), from_vector<int64_t>({0, 1, 3, 3, 6, 7}, {6}));
  const auto parts = [](const Element& e) {
    return std::tuple(e["values"].tensor(), e["row_splits"].tensor());
  };
  const auto [values, splits] = steps(t, Dataset::from_tensors(rows), parts).front();
  return show(values, splits);
}

}  // namespace
}  // namespace cohort::conformance
