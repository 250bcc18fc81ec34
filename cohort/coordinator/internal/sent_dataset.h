// SPDX-License-Identifier: Apache-2.0
//
// Datasets between the coordinator and workers: their elements as bytes, for a pipeline itself does
// not travel.
//
//   SentDataset sent = read_for_sending(pipeline, most_bytes);   // at the coordinator
//   Dataset here = make_sent_dataset(sent.spec, sent.elements);  // on a worker
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::internal::coordinator {

struct SentDataset {
  std::string spec = {};
  std::vector<std::string> elements = {};
};

/// One pass over all elements. Errors: InvalidArgument where they have more than so many bytes in
/// all; what the pipeline throws; Unimplemented for elements that hold datasets.
SentDataset read_for_sending(const Dataset& pipeline, std::size_t most_bytes);
/// Registered: the same elements in the same order, in every pass. Errors: InvalidArgument for
/// bytes that are none.
Dataset make_sent_dataset(const std::string& spec, const std::vector<std::string>& elements);

/// Registered: what a worker's dataset says of its elements.
std::string packed_spec_of(Dataset& dataset);
ElementSpec unpacked_spec(const std::string& bytes);

}  // namespace cohort::internal::coordinator
