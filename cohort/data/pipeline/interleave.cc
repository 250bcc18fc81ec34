// SPDX-License-Identifier: Apache-2.0
//
// flat_map and interleave: a dataset for every element, read in turns.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/threads/interleave_stream.h"

namespace cohort::internal {
namespace {

class InterleaveNode final : public DatasetNode {
 public:
  InterleaveNode(std::string operation, const NodePtr& input, DatasetFunction fn,
                 const InterleaveOptions& options)
      : DatasetNode(std::move(operation), options.spec.value_or(ElementSpec()), {input}),
        fn_(std::move(fn)),
        options_(options) {}

  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    auto node = std::static_pointer_cast<const InterleaveNode>(shared_from_this());
    OpenDataset open = [node](const Element& e, int64_t index) { return node->call(e, index); };
    InterleaveSetting setting{
        .cycle_length = turns(),
        .block_length = options_.block_length,
        .threads = options_.parallel_calls,
        .ordered = options_.deterministic.value_or(Pass::current()->options().deterministic)};
    if (options_.parallel_calls == kAutotune) {
      // More threads than datasets, the ones opened in advance among them, have nothing to do.
      setting.tuner = std::make_unique<StageTuner>(
          std::min(most_blocking_calls(), 2 * std::min(turns(), most_blocking_calls())));
    }
    PressureScope pressure(setting.tuner ? setting.tuner->pressure() : current_pressure());
    auto arguments = open_stream<Element>(input());
    return make_interleave_stream(std::move(open), std::move(arguments), std::move(setting));
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<InterleaveNode>(operation(), inputs[0], fn_, options_);
  }
  const DatasetFunction* dataset_function() const override { return &fn_; }
  std::string arguments() const override {
    return str_cat(options_.cycle_length, " ", options_.block_length);
  }

 private:
  /// A cycle may stand for "all": turns that no dataset can have are left out.
  int turns() const {
    const int64_t datasets = input().cardinality();
    if (datasets < 0) return options_.cycle_length;
    return static_cast<int>(std::clamp<int64_t>(datasets, 1, options_.cycle_length));
  }
  NodePtr call(const Element& argument, int64_t index) const {
    try {
      NodePtr out = fn_(argument);
      COHORT_CHECK_ARG(out != nullptr, "expected a dataset, got none");
      COHORT_CHECK_ARG(spec().compatible_with(out->spec()), "expected elements like ",
                       spec().to_string(), ", got ", out->spec().to_string());
      return out;
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
  const DatasetFunction fn_;
  const InterleaveOptions options_;
};

}  // namespace

NodePtr make_interleave_node(std::string operation, NodePtr input, DatasetFunction fn,
                             InterleaveOptions options) {
  COHORT_CHECK_ARG(options.cycle_length >= 1, "[dataset.", operation,
                   "] expected a cycle of at least 1 dataset, got ", options.cycle_length);
  COHORT_CHECK_ARG(options.block_length >= 1, "[dataset.", operation,
                   "] expected blocks of at least 1 element, got ", options.block_length);
  COHORT_CHECK_ARG(options.parallel_calls >= 1 || options.parallel_calls == kAutotune, "[dataset.",
                   operation, "] expected at least 1 parallel call or kAutotune, got ",
                   options.parallel_calls);
  return std::make_shared<InterleaveNode>(std::move(operation), input, std::move(fn), options);
}

}  // namespace cohort::internal
