// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataset: batches of a dataset, each split over the replicas.
//
//   auto dist = strategy.distribute_dataset(train.batch(global_batch));
//   for (auto& batch : dist) strategy.run(step, batch);
//
// A batch of n rows gives the first n mod R replicas one row more. The last partial batch fills
// replica 0 first; who gets nothing sees tensors of 0 rows, so that every step has every replica.
#pragma once

#include <iterator>
#include <memory>
#include <optional>

#include "cohort/data/dataset.h"
#include "cohort/values/per_replica.h"

namespace cohort {

using namespace data;  // NOLINT: Dataset, Element, batches' options are written without a prefix

/// Position in a distributed input. Threads: one caller at a time, cross-replica.
class DistributedIterator {
 public:
  DistributedIterator(data::Iterator source, int replicas);
  /// The next step's batches; nullopt at the end, and ever after.
  /// TF: get_next_as_optional.
  std::optional<PerReplica<Element>> next();

 private:
  data::Iterator source_;
  int replicas_;
};

/// Immutable; every iteration starts anew. TF: tf.distribute.DistributedDataset.
class DistributedDataset {
 public:
  /// Errors: InvalidArgument unless the dataset ends in batches; of elements whose shapes are not
  ///         known, as after a map, the iterator's next() throws it.
  DistributedDataset(Dataset global_batches, int replicas);

  DistributedIterator make_iterator() const;
  internal::RangeIterator<PerReplica<Element>, DistributedIterator> begin() const;
  std::default_sentinel_t end() const { return {}; }
  /// Of the global batches.
  const ElementSpec& element_spec() const { return dataset_.element_spec(); }
  /// Steps of a pass, kInfiniteCardinality or kUnknownCardinality.
  int64_t cardinality() const { return dataset_.cardinality(); }
  /// Rows of a full global batch, or kUnknownDim.
  int64_t global_batch_size() const { return dataset_.batch_rows(); }
  int num_replicas() const { return replicas_; }

 private:
  Dataset dataset_;
  int replicas_;
};

}  // namespace cohort
