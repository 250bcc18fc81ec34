// SPDX-License-Identifier: Apache-2.0
//
// rejection_resample: leaves out elements of the classes of which there are too many.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/pipeline/internal/iteration_seeds.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

constexpr const char* kTag = "[dataset.rejection_resample]";

struct ResampleParams {
  std::function<int64_t(const Element&)> class_of;
  std::vector<double> target;
  ResampleOptions options;
  uint64_t seed;  ///< Given or not.
};

class ResampleNode final
    : public StepNode<ResampleNode, ResampleParams, WithIterationSeeds<DatasetNode>> {
 public:
  ResampleNode(std::vector<NodePtr> inputs, ResampleParams params)
      : StepNode(params, params.seed, true, "rejection_resample",
                 ElementSpec::tuple({TensorSpec{{}, kInt64}, inputs[0]->spec()}), inputs) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    return n > 0 ? kUnknownCardinality : n;
  }
  std::unique_ptr<ElementStream> make_stream() const override;
  int64_t batch_rows() const override { return kUnknownDim; }
  std::string arguments() const override {
    const ResampleOptions& options = params().options;
    return str_cat(bracketed(params().target), " of ", bracketed(options.initial_dist),
                   options.seed ? str_cat(" seed ", *options.seed) : "");
  }

  std::size_t class_of(const Element& element, int64_t index) const {
    try {
      const int64_t of = params().class_of(element);
      COHORT_CHECK_ARG(of >= 0 && of < static_cast<int64_t>(classes()), "expected a class in [0, ",
                       classes(), "), got ", of);
      return static_cast<std::size_t>(of);
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
  /// The part of a class's elements that is kept, where classes come as `initial` says. The class
  /// that is the rarest beside what is wanted of it is kept whole.
  double kept(std::size_t of, const std::vector<double>& initial) const {
    const std::vector<double>& target = params().target;
    double greatest = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (initial[i] > 0) greatest = std::max(greatest, target[i] / initial[i]);
    }
    // A class that was not to be expected came nevertheless: by the others' measure, too rarely.
    if (initial[of] <= 0) return target[of] > 0 ? 1 : 0;
    return greatest > 0 ? target[of] / initial[of] / greatest : 0;
  }
  const std::vector<double>& initial() const { return params().options.initial_dist; }
  std::size_t classes() const { return params().target.size(); }
};

class ResampleStream final : public ElementStream {
 public:
  explicit ResampleStream(std::shared_ptr<const ResampleNode> node)
      : node_(std::move(node)),
        input_(open_stream<Element>(*node_->inputs().front())),
        random_(node_->seeds()),
        // So many of each, before there are any: TensorFlow's estimate begins there, too.
        seen_(node_->initial().empty() ? node_->classes() : 0, 10) {}

  bool next(Element& out) override {
    Element element;
    while (input_->next(element)) {
      const std::size_t of = node_->class_of(element, index_++);
      if (!seen_.empty()) ++seen_[of];
      if (!keeps(of)) continue;
      out =
          Element({from_vector<int64_t>({static_cast<int64_t>(of)}, Shape{}), std::move(element)});
      return true;
    }
    return false;
  }
  void save(StateWriter& out) override {
    out.put_int(index_);
    for (double count : seen_) out.put_int(static_cast<int64_t>(count));
    input_->save(out);
    random_.save(out);
  }
  void restore(StateReader& in) override {
    index_ = in.get_int();
    for (double& count : seen_) {
      count = static_cast<double>(in.get_count(std::numeric_limits<int64_t>::max()));
    }
    input_->restore(in);
    random_.restore(in);
  }

 private:
  bool keeps(std::size_t of) {
    return random_.part() < node_->kept(of, seen_.empty() ? node_->initial() : seen_);
  }

  const std::shared_ptr<const ResampleNode> node_;
  const std::unique_ptr<ElementStream> input_;
  IterationRandom random_;
  std::vector<double> seen_;  ///< Elements of each class so far; empty where that is given.
  int64_t index_ = 0;
};

std::unique_ptr<ElementStream> ResampleNode::make_stream() const {
  return std::make_unique<ResampleStream>(self());
}

void check_distribution(const char* name, const std::vector<double>& parts) {
  const bool valid =
      std::all_of(parts.begin(), parts.end(), [](double p) { return p >= 0 && p <= 1e300; });
  COHORT_CHECK_ARG(valid && std::accumulate(parts.begin(), parts.end(), 0.0) > 0, kTag,
                   " expected a ", name, " of parts of at least 0, one of them above 0, got ",
                   bracketed(parts));
}

void check_distributions(const std::vector<double>& target, const std::vector<double>& initial) {
  check_distribution("target_dist", target);
  if (initial.empty()) return;
  check_distribution("initial_dist", initial);
  COHORT_CHECK_ARG(initial.size() == target.size(), kTag, " expected an initial_dist of ",
                   target.size(), " classes, as many as target_dist has, got ", initial.size());
  for (std::size_t i = 0; i < initial.size(); ++i) {
    COHORT_CHECK_ARG(
        initial[i] > 0 || target[i] == 0, kTag,
        " expected an initial_dist above 0 for every class with a target_dist above 0, got ",
        bracketed(initial), " for ", bracketed(target));
  }
}

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::do_resample(std::function<int64_t(const Element&)> class_of,
                             std::vector<double> target_dist,
                             const ResampleOptions& options) const {
  const internal::data::NodePtr& input = node();
  internal::data::check_distributions(target_dist, options.initial_dist);
  return internal::data::with_step<internal::data::ResampleNode>(
      input, internal::data::ResampleParams{std::move(class_of), std::move(target_dist), options,
                                            internal::data::seed_or_default(options.seed)});
}

}  // namespace cohort::data
