// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/sent_dataset.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/function.h"
#include "cohort/data/core/internal/state.h"

namespace cohort::internal::coordinator {
namespace {

std::string packed_spec(const ElementSpec& spec) {
  data::StateWriter out;
  out.put_spec(spec);
  return std::move(out).take();
}

const Registration kSentDatasets[] = {{"coordinator.sent_dataset", &make_sent_dataset},
                                      {"coordinator.element_spec", &packed_spec_of}};

}  // namespace

SentDataset read_for_sending(const Dataset& pipeline, std::size_t most_bytes) {
  SentDataset out{.spec = packed_spec(pipeline.element_spec())};
  std::size_t bytes = 0;
  for (const Element& each : pipeline) {
    data::StateWriter one;
    one.put_element(each);
    out.elements.push_back(std::move(one).take());
    bytes += out.elements.back().size() + 2 * sizeof(uint64_t);  // and its length
    COHORT_CHECK_ARG(
        bytes <= most_bytes, "[create_per_worker_dataset] expected a dataset of at most ",
        most_bytes >> 20, " MiB, for its elements are sent to every worker, got more in ",
        out.elements.size(),
        " elements; give a registered function that makes it there: Dataset make_data(int64_t "
        "batch) { ... } COHORT_REGISTER_FUNCTION(make_data);");
  }
  return out;
}

Dataset make_sent_dataset(const std::string& spec, const std::vector<std::string>& elements) {
  std::vector<Element> all;
  all.reserve(elements.size());
  for (const std::string& bytes : elements) {
    data::StateReader in(bytes);
    all.push_back(in.get_element());
    in.expect_end();
  }
  return Dataset::from_range(std::move(all), unpacked_spec(spec));
}

std::string packed_spec_of(Dataset& dataset) { return packed_spec(dataset.element_spec()); }

ElementSpec unpacked_spec(const std::string& bytes) {
  data::StateReader in(bytes);
  ElementSpec out = in.get_spec();
  in.expect_end();
  return out;
}

}  // namespace cohort::internal::coordinator
