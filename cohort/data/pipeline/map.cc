// SPDX-License-Identifier: Apache-2.0
//
// map and filter. What a function throws arrives at the reader with the number of the element and
// the place in the pipeline before its text.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/predicate_stream.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/pipeline/internal/threads/map_stream.h"

namespace cohort::internal::data {
namespace {

struct MapParams {
  std::function<Element(const Element&)> fn;
  ElementSpec spec;  ///< Of what fn returns.
  MapOptions options;
};

class MapNode final : public StepNode<MapNode, MapParams> {
 public:
  MapNode(std::vector<NodePtr> inputs, MapParams params)
      : StepNode(params, "map", params.spec, inputs) {}

  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    const MapOptions& options = params().options;
    MapCall call = [node = self()](const Element& e, int64_t index) {
      return node->call(e, index);
    };
    const bool ordered = options.deterministic.value_or(Pass::current()->options().deterministic);
    MapSetting setting{.threads = options.parallel_calls, .ordered = ordered};
    if (options.parallel_calls == kAutotune) {
      setting.tuner = std::make_unique<StageTuner>(most_blocking_calls());
    }
    const ConsumerWaitScope reads_for(setting.tuner ? setting.tuner->consumer_wait()
                                                    : current_consumer_wait());
    auto elements = open_stream<Element>(input());
    return make_map_stream(std::move(call), std::move(elements), std::move(setting));
  }

 private:
  Element call(const Element& element, int64_t index) const {
    try {
      Element out = params().fn(element);
      COHORT_CHECK_ARG(out.has_value(), "expected a result, got an element without a value");
      COHORT_CHECK_ARG(spec().compatible_with(out), "expected a result like ", spec().to_string(),
                       ", got ", out.spec().to_string());
      return out;
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
};

class FilterStream final : public PredicateStream {
 public:
  using PredicateStream::PredicateStream;

  bool next(Element& out) override {
    while (read(out)) {
      if (holds(out, count_++)) return true;
    }
    return false;
  }
};

class FilterNode final : public StepNode<FilterNode, ElementPredicate, KeepingNode> {
 public:
  FilterNode(std::vector<NodePtr> inputs, ElementPredicate predicate)
      : StepNode(std::move(predicate), "filter", inputs) {}

  int64_t cardinality() const override { return kUnknownCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<FilterStream>(shared_from_this(), params(),
                                          open_stream<Element>(input()));
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::do_map(std::function<Element(const Element&)> fn, ElementSpec result,
                        const MapOptions& options) const {
  const internal::data::NodePtr& input = node();
  COHORT_CHECK_ARG(options.parallel_calls >= 1 || options.parallel_calls == kAutotune,
                   "[dataset.map] expected at least 1 parallel call or kAutotune, got ",
                   options.parallel_calls);
  return internal::data::with_step<internal::data::MapNode>(
      input,
      internal::data::MapParams{std::move(fn), options.spec.value_or(std::move(result)), options});
}
Dataset Dataset::do_filter(std::function<bool(const Element&)> predicate) const {
  return internal::data::with_step<internal::data::FilterNode>(node(), std::move(predicate));
}

}  // namespace cohort::data
