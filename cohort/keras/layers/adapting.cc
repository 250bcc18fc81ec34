// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/adapting.h"

#include "cohort/base/check.h"
#include "cohort/data/dataset.h"
#include "cohort/runtime/replica_group.h"

namespace cohort::keras {
namespace {

const Element& features_of(const Element& batch) {
  return batch.is_tuple() && !batch.is_ragged() ? batch[0] : batch;
}

}  // namespace

void AdaptingLayer::adapt(const Element& data, const AdaptOptions& options) {
  check_not_moved("adapt");
  COHORT_CHECK_STATE(cohort::internal::runtime::current_replica_group() == nullptr,
                     "[adapt] expected a call outside of Strategy::run, got one of \"", name(),
                     "\" in a replica");
  COHORT_CHECK_ARG(data.has_value(), "[adapt] expected a dataset, a tensor or strings for \"",
                   name(), "\", got nothing");
  begin_learning();
  if (!data.is_dataset()) {
    learn(as_batch(features_of(data)));
    return finish_learning();
  }
  Dataset batches = as_batches(data).dataset();
  if (options.steps) batches = batches.take(*options.steps);
  bool any = false;
  for (const Element& batch : batches) {
    learn(features_of(batch));
    any = true;
  }
  COHORT_CHECK_ARG(any, "[adapt] expected data for \"", name(), "\", got an empty dataset");
  finish_learning();
}

void AdaptingHandle::adapt(const Element& data, const AdaptOptions& options) const {
  static_cast<AdaptingLayer&>(use()).adapt(data, options);
}

}  // namespace cohort::keras
