// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/distributed_dataset.h"

#include <utility>
#include <vector>

#include "cohort/base/check.h"

namespace cohort {

DistributedIterator::DistributedIterator(data::Iterator source, int replicas)
    : source_(std::move(source)), replicas_(replicas) {}

std::optional<PerReplica<Element>> DistributedIterator::next() {
  std::vector<Element> pieces(static_cast<std::size_t>(replicas_));
  if (!source_.next_split(pieces)) return std::nullopt;
  return PerReplica<Element>(std::move(pieces));
}

DistributedDataset::DistributedDataset(Dataset global_batches, int replicas)
    : dataset_(std::move(global_batches)), replicas_(replicas) {
  for (const data::TensorSpec& leaf : dataset_.element_spec().flat()) {
    COHORT_CHECK_ARG(!leaf.known_rank || !leaf.shape.empty(),
                     "[strategy.distribute_dataset] expected batches, got elements ",
                     dataset_.element_spec().to_string(), " with a scalar: call batch() first");
  }
}

DistributedIterator DistributedDataset::make_iterator() const {
  return DistributedIterator(dataset_.make_iterator(), replicas_);
}

internal::RangeIterator<PerReplica<Element>, DistributedIterator> DistributedDataset::begin()
    const {
  return internal::RangeIterator<PerReplica<Element>, DistributedIterator>(make_iterator());
}

}  // namespace cohort
