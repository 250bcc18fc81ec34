// SPDX-License-Identifier: Apache-2.0
//
// map and filter. What a function throws arrives at the reader with the number of the element and
// the place in the pipeline before its text.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/predicate_stream.h"
#include "cohort/data/pipeline/internal/threads/map_stream.h"

namespace cohort::internal {
namespace {

class MapNode final : public DatasetNode {
 public:
  MapNode(const NodePtr& input, ElementFunction fn, ElementSpec result, MapOptions options)
      : DatasetNode("map", std::move(result), {input}),
        fn_(std::move(fn)),
        options_(std::move(options)) {}

  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    auto node = std::static_pointer_cast<const MapNode>(shared_from_this());
    MapCall call = [node](const Element& e, int64_t index) { return node->call(e, index); };
    const bool ordered = options_.deterministic.value_or(Pass::current()->options().deterministic);
    MapSetting setting{.threads = options_.parallel_calls, .ordered = ordered};
    if (options_.parallel_calls == kAutotune) {
      setting.tuner = std::make_unique<StageTuner>(most_blocking_calls());
    }
    PressureScope pressure(setting.tuner ? setting.tuner->pressure() : current_pressure());
    auto elements = open_stream<Element>(input());
    return make_map_stream(std::move(call), std::move(elements), std::move(setting));
  }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<MapNode>(inputs[0], fn_, spec(), options_);
  }

 private:
  Element call(const Element& element, int64_t index) const {
    try {
      Element out = fn_(element);
      COHORT_CHECK_ARG(out.has_value(), "expected a result, got an element without a value");
      COHORT_CHECK_ARG(spec().compatible_with(out), "expected a result like ", spec().to_string(),
                       ", got ", out.spec().to_string());
      return out;
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }

  const ElementFunction fn_;
  const MapOptions options_;
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

class FilterNode final : public DatasetNode {
 public:
  FilterNode(const NodePtr& input, ElementPredicate predicate)
      : DatasetNode("filter", input->spec(), {input}), predicate_(std::move(predicate)) {}

  int64_t cardinality() const override { return kUnknownCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<FilterStream>(shared_from_this(), predicate_,
                                          open_stream<Element>(input()));
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<FilterNode>(inputs[0], predicate_);
  }

 private:
  const ElementPredicate predicate_;
};

}  // namespace

NodePtr make_map_node(NodePtr input, ElementFunction fn, ElementSpec result, MapOptions options) {
  COHORT_CHECK_ARG(options.parallel_calls >= 1 || options.parallel_calls == kAutotune,
                   "[dataset.map] expected at least 1 parallel call or kAutotune, got ",
                   options.parallel_calls);
  ElementSpec spec = options.spec ? *options.spec : result;
  return std::make_shared<MapNode>(input, std::move(fn), std::move(spec), std::move(options));
}

NodePtr make_filter_node(NodePtr input, ElementPredicate predicate) {
  return std::make_shared<FilterNode>(input, std::move(predicate));
}

}  // namespace cohort::internal
