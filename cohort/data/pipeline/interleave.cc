// SPDX-License-Identifier: Apache-2.0
//
// flat_map and interleave: a dataset for every element, read in turns.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/pipeline/internal/threads/interleave_stream.h"

namespace cohort::internal::data {
namespace {

struct InterleaveParams {
  std::string operation;  ///< flat_map or interleave.
  DatasetFunction fn;
  InterleaveOptions options;
};

class InterleaveNode final : public StepNode<InterleaveNode, InterleaveParams> {
 public:
  InterleaveNode(std::vector<NodePtr> inputs, InterleaveParams params)
      : StepNode(params, params.operation, params.options.spec.value_or(ElementSpec()), inputs) {}

  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    const InterleaveOptions& options = params().options;
    OpenDataset open = [node = self()](const Element& e, int64_t index) {
      return node->call(e, index);
    };
    InterleaveSetting setting{
        .cycle_length = turns(),
        .block_length = options.block_length,
        .threads = options.parallel_calls,
        .ordered = options.deterministic.value_or(Pass::current()->options().deterministic)};
    if (options.parallel_calls == kAutotune) {
      // More threads than datasets, the ones opened in advance among them, have nothing to do.
      setting.tuner = std::make_unique<StageTuner>(
          std::min(most_blocking_calls(), 2 * std::min(turns(), most_blocking_calls())));
    }
    const ConsumerWaitScope reads_for(setting.tuner ? setting.tuner->consumer_wait()
                                                    : current_consumer_wait());
    auto arguments = open_stream<Element>(input());
    return make_interleave_stream(std::move(open), std::move(arguments), std::move(setting));
  }
  const DatasetFunction* dataset_function() const override { return &params().fn; }
  std::string arguments() const override {
    return str_cat(params().options.cycle_length, " ", params().options.block_length);
  }

 private:
  /// A cycle may stand for "all": turns that no dataset can have are left out.
  int turns() const {
    const int64_t datasets = input().cardinality();
    const int most = params().options.cycle_length;
    return datasets < 0 ? most : static_cast<int>(std::clamp<int64_t>(datasets, 1, most));
  }
  NodePtr call(const Element& argument, int64_t index) const {
    try {
      NodePtr out = params().fn(argument);
      COHORT_CHECK_ARG(out != nullptr, "expected a dataset, got none");
      COHORT_CHECK_ARG(spec().compatible_with(out->spec()), "expected elements like ",
                       spec().to_string(), ", got ", out->spec().to_string());
      return out;
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::do_interleave(
    std::string operation,
    std::function<std::shared_ptr<const internal::data::DatasetNode>(const Element&)> fn,
    InterleaveOptions options) const {
  const internal::data::NodePtr& input = node();
  COHORT_CHECK_ARG(options.cycle_length >= 1, "[dataset.", operation,
                   "] expected a cycle of at least 1 dataset, got ", options.cycle_length);
  COHORT_CHECK_ARG(options.block_length >= 1, "[dataset.", operation,
                   "] expected blocks of at least 1 element, got ", options.block_length);
  COHORT_CHECK_ARG(options.parallel_calls >= 1 || options.parallel_calls == kAutotune, "[dataset.",
                   operation, "] expected at least 1 parallel call or kAutotune, got ",
                   options.parallel_calls);
  return internal::data::with_step<internal::data::InterleaveNode>(
      input,
      internal::data::InterleaveParams{std::move(operation), std::move(fn), std::move(options)});
}

}  // namespace cohort::data
