// SPDX-License-Identifier: Apache-2.0
//
// sample_from_datasets and choose_from_datasets: which input is next is drawn, or read.
#include <algorithm>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/function_adapter.h"
#include "cohort/data/pipeline/internal/iteration_seeds.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

constexpr std::size_t kEnd = static_cast<std::size_t>(-1);

/// Says which input is next. Threads: one caller at a time.
class Chooser {
 public:
  virtual ~Chooser() = default;
  /// One of those that are not ended, or kEnd.
  virtual std::size_t choose(const std::vector<bool>& ended) = 0;
  virtual void save(StateWriter& out) = 0;
  virtual void restore(StateReader& in) = 0;
};

constexpr const char* kSample = "[dataset.sample_from_datasets]";

void check_weights(const std::vector<double>& weights, std::size_t inputs) {
  COHORT_CHECK_ARG(weights.size() == inputs, kSample, " expected ", inputs,
                   " weights, one for each dataset, got ", weights.size());
  for (double w : weights) {
    COHORT_CHECK_ARG(w >= 0 && w <= 1e300, kSample, " expected weights of at least 0, got ",
                     bracketed(weights));
  }
}

class RandomChooser final : public Chooser {
 public:
  /// `each_draw` has the weights of each draw; null: they are `weights`.
  RandomChooser(std::vector<double> weights, std::unique_ptr<ElementStream> each_draw,
                std::size_t inputs, std::shared_ptr<IterationSeeds> seeds)
      : weights_(std::move(weights)),
        each_draw_(std::move(each_draw)),
        inputs_(inputs),
        random_(std::move(seeds)) {}

  std::size_t choose(const std::vector<bool>& ended) override {
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) return kEnd;
    while (each_draw_ == nullptr || read_weights()) {
      double total = 0;
      for (std::size_t i = 0; i < inputs_; ++i) total += ended[i] ? 0 : weights_[i];
      if (total > 0) return draw(total, ended);
      if (each_draw_ == nullptr) break;
    }
    return kEnd;
  }
  void save(StateWriter& out) override {
    if (each_draw_ != nullptr) each_draw_->save(out);
    random_.save(out);
  }
  void restore(StateReader& in) override {
    if (each_draw_ != nullptr) each_draw_->restore(in);
    random_.restore(in);
  }

 private:
  bool read_weights() {
    Element next;
    if (!each_draw_->next(next)) return false;
    weights_ = to_vector<double>(next.tensor().to(kFloat64));
    check_weights(weights_, inputs_);
    return true;
  }
  std::size_t draw(double total, const std::vector<bool>& ended) {
    double left = total * random_.part();
    std::size_t last = kEnd;
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (ended[i] || weights_[i] <= 0) continue;
      last = i;
      if (left < weights_[i]) break;
      left -= weights_[i];
    }
    return last;
  }

  std::vector<double> weights_;
  const std::unique_ptr<ElementStream> each_draw_;
  const std::size_t inputs_;
  IterationRandom random_;
};

class ReadChooser final : public Chooser {
 public:
  ReadChooser(std::unique_ptr<ElementStream> choices, std::size_t inputs)
      : choices_(std::move(choices)), inputs_(inputs) {}

  std::size_t choose(const std::vector<bool>& ended) override {
    Element choice;
    while (choices_->next(choice)) {
      const int64_t i = integer_of("[dataset.choose_from_datasets]", choice);
      COHORT_CHECK_ARG(i >= 0 && i < static_cast<int64_t>(inputs_),
                       "[dataset.choose_from_datasets] expected a choice in [0, ", inputs_,
                       "), got ", i);
      if (!ended[static_cast<std::size_t>(i)]) return static_cast<std::size_t>(i);
    }
    return kEnd;
  }
  void save(StateWriter& out) override { choices_->save(out); }
  void restore(StateReader& in) override { choices_->restore(in); }

 private:
  const std::unique_ptr<ElementStream> choices_;
  const std::size_t inputs_;
};

class MixStream final : public ElementStream {
 public:
  MixStream(std::unique_ptr<Chooser> chooser, std::vector<std::unique_ptr<ElementStream>> inputs,
            bool stop_on_empty)
      : chooser_(std::move(chooser)),
        inputs_(std::move(inputs)),
        stop_on_empty_(stop_on_empty),
        ended_(inputs_.size(), false) {}

  bool next(Element& out) override {
    while (!stopped_) {
      const std::size_t i = chosen_ != kEnd ? chosen_ : chooser_->choose(ended_);
      if (i == kEnd) {
        stopped_ = true;
        break;
      }
      chosen_ = i;  // Stays if the input throws: the reader gets this input's next element.
      const bool more = inputs_[i]->next(out);
      chosen_ = kEnd;
      if (more) return true;
      ended_[i] = true;
      // Choices may have no end.
      stopped_ = stop_on_empty_ || std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    }
    return false;
  }
  void save(StateWriter& out) override {
    out.put_int(stopped_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(chosen_ + 1));
    chooser_->save(out);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      out.put_int(ended_[i] ? 1 : 0);
      inputs_[i]->save(out);
    }
  }
  void restore(StateReader& in) override {
    stopped_ = in.get_flag();
    chosen_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(inputs_.size()))) - 1;
    chooser_->restore(in);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      ended_[i] = in.get_flag();
      inputs_[i]->restore(in);
    }
  }

 private:
  const std::unique_ptr<Chooser> chooser_;
  const std::vector<std::unique_ptr<ElementStream>> inputs_;
  const bool stop_on_empty_;
  std::vector<bool> ended_;
  std::size_t chosen_ = kEnd;
  bool stopped_ = false;
};

ElementSpec common_spec(const std::string& operation, std::span<const NodePtr> inputs) {
  COHORT_CHECK_ARG(!inputs.empty(), operation, " expected at least 1 dataset, got none");
  ElementSpec spec = inputs.front()->spec();
  for (const NodePtr& input : inputs) spec = ElementSpec::common(operation, spec, input->spec());
  return spec;
}

std::vector<std::unique_ptr<ElementStream>> open_all(std::span<const NodePtr> inputs) {
  std::vector<std::unique_ptr<ElementStream>> out;
  for (const NodePtr& input : inputs) out.push_back(open_stream<Element>(*input));
  return out;
}

/// The datasets to draw from; without weights, those are the last input.
std::span<const NodePtr> sampled(const std::vector<NodePtr>& inputs,
                                 const std::vector<double>& weights) {
  return std::span(inputs).first(inputs.size() - (weights.empty() ? 1 : 0));
}

struct SampleParams {
  std::vector<double> weights;  ///< Empty: they are read.
  SampleOptions options;
  uint64_t seed;  ///< Given or not.
};

class SampleNode final
    : public StepNode<SampleNode, SampleParams, WithIterationSeeds<DatasetNode>> {
 public:
  SampleNode(std::vector<NodePtr> inputs, SampleParams params)
      : StepNode(params, params.seed, params.options.rerandomize_each_iteration,
                 "sample_from_datasets", common_spec(kSample, sampled(inputs, params.weights)),
                 inputs) {}

  int64_t cardinality() const override {
    const bool to_first_end = params().options.stop_on_empty_dataset;
    if (params().weights.empty()) return kUnknownCardinality;
    int64_t sum = 0;
    for (std::size_t i = 0; i < inputs().size(); ++i) {
      if (params().weights[i] <= 0) continue;  // never read
      const int64_t n = inputs()[i]->cardinality();
      if (n == kInfiniteCardinality && !to_first_end) return n;
      if (n < 0 || to_first_end) return kUnknownCardinality;
      sum = saturated_sum(sum, n);
    }
    return sum;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    const std::vector<double>& weights = params().weights;
    const std::span<const NodePtr> parts = sampled(inputs(), weights);
    auto each_draw = weights.empty() ? open_stream<Element>(*inputs().back()) : nullptr;
    auto chooser =
        std::make_unique<RandomChooser>(weights, std::move(each_draw), parts.size(), seeds());
    return std::make_unique<MixStream>(std::move(chooser), open_all(parts),
                                       params().options.stop_on_empty_dataset);
  }
  std::string arguments() const override {
    const SampleOptions& options = params().options;
    return str_cat(bracketed(params().weights),
                   options.seed ? str_cat(" seed ", *options.seed) : "",
                   options.stop_on_empty_dataset ? " to the first end" : "",
                   options.rerandomize_each_iteration ? " each" : "");
  }
};

/// All but the choices, which are the last input.
std::span<const NodePtr> chosen_from(const std::vector<NodePtr>& inputs) {
  return std::span(inputs).first(inputs.size() - 1);
}

class ChooseNode final : public StepNode<ChooseNode, ChooseOptions> {
 public:
  ChooseNode(std::vector<NodePtr> inputs, ChooseOptions options)
      : StepNode(options, "choose_from_datasets",
                 common_spec("[dataset.choose_from_datasets]", chosen_from(inputs)), inputs) {}

  int64_t cardinality() const override { return kUnknownCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    const auto parts = chosen_from(inputs());
    return std::make_unique<MixStream>(
        std::make_unique<ReadChooser>(open_stream<Element>(*inputs().back()), parts.size()),
        open_all(parts), params().stop_on_empty_dataset);
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

namespace {

std::vector<internal::data::NodePtr> nodes_of(const std::vector<Dataset>& datasets,
                                              const char* operation = __builtin_FUNCTION()) {
  std::vector<internal::data::NodePtr> nodes;
  for (const Dataset& dataset : datasets) nodes.push_back(dataset.node(operation));
  return nodes;
}

}  // namespace

Dataset Dataset::sample_from_datasets(std::vector<Dataset> datasets, std::vector<double> weights,
                                      SampleOptions options) {
  std::vector<internal::data::NodePtr> inputs = nodes_of(datasets);
  COHORT_CHECK_ARG(!inputs.empty(), internal::data::kSample,
                   " expected at least 1 dataset, got none");
  if (weights.empty()) weights.assign(inputs.size(), 1);
  internal::data::check_weights(weights, inputs.size());
  COHORT_CHECK_ARG(std::accumulate(weights.begin(), weights.end(), 0.0) > 0,
                   internal::data::kSample, " expected a weight above 0, got ", bracketed(weights));
  return Dataset(std::make_shared<internal::data::SampleNode>(
      std::move(inputs),
      internal::data::SampleParams{std::move(weights), options,
                                   internal::data::seed_or_default(options.seed)}));
}

Dataset Dataset::sample_from_datasets(std::vector<Dataset> datasets, const Dataset& weights,
                                      SampleOptions options) {
  std::vector<internal::data::NodePtr> inputs = nodes_of(datasets);
  const ElementSpec row = TensorSpec{{static_cast<int64_t>(inputs.size())}, DType::Undefined};
  COHORT_CHECK_ARG(row.compatible_with(weights.node()->spec()), internal::data::kSample,
                   " expected weights [", inputs.size(), "], one for each dataset, got elements ",
                   weights.node()->spec().to_string());
  inputs.push_back(weights.node());
  return Dataset(std::make_shared<internal::data::SampleNode>(
      std::move(inputs),
      internal::data::SampleParams{{}, options, internal::data::seed_or_default(options.seed)}));
}

Dataset Dataset::choose_from_datasets(std::vector<Dataset> datasets, const Dataset& choices,
                                      ChooseOptions options) {
  std::vector<internal::data::NodePtr> inputs = nodes_of(datasets);
  inputs.push_back(choices.node());
  return Dataset(std::make_shared<internal::data::ChooseNode>(std::move(inputs), options));
}

}  // namespace cohort::data
