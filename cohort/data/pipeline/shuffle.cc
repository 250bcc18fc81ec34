// SPDX-License-Identifier: Apache-2.0
//
// shuffle: a buffer, and orders that follow from a seed and the number of the pass.
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/iteration_seeds.h"
#include "cohort/data/pipeline/internal/order_node.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

/// A buffer from which a random element leaves and the next one of the input takes its place.
template <class T>
class ShuffleStream final : public Stream<T> {
 public:
  ShuffleStream(std::unique_ptr<Stream<T>> input, int64_t buffer_size,
                std::shared_ptr<IterationSeeds> seeds)
      : input_(std::move(input)),
        buffer_size_(static_cast<std::size_t>(buffer_size)),
        random_(std::move(seeds)) {}

  bool next(T& out) override {
    T incoming{};
    while (!input_ended_ && buffer_.size() < buffer_size_) {
      if (take_input(incoming)) buffer_.push_back(std::move(incoming));
    }
    if (buffer_.empty()) return false;
    T& chosen = buffer_[random_.below(buffer_.size())];
    out = std::move(chosen);
    chosen = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(input_ended_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(buffer_.size()));
    for (const T& value : buffer_) out.put(value);
    input_->save(out);
    random_.save(out);
  }
  void restore(StateReader& in) override {
    input_ended_ = in.get_flag();
    for (int64_t left = in.get_count(static_cast<int64_t>(buffer_size_)); left > 0; --left) {
      buffer_.push_back(in.get<T>());
    }
    input_->restore(in);
    random_.restore(in);
  }

 private:
  bool take_input(T& out) {
    if (!input_->next(out)) input_ended_ = true;
    return !input_ended_;
  }

  const std::unique_ptr<Stream<T>> input_;
  const std::size_t buffer_size_;
  IterationRandom random_;
  std::vector<T> buffer_;
  bool input_ended_ = false;
};

struct ShuffleParams {
  int64_t buffer_size;
  ShuffleOptions options;
  uint64_t seed;  ///< Given or not.
};

class ShuffleNode final
    : public StepNode<ShuffleNode, ShuffleParams, WithIterationSeeds<OrderNode<ShuffleNode>>> {
 public:
  ShuffleNode(std::vector<NodePtr> inputs, ShuffleParams params)
      : StepNode(params, params.seed, params.options.reshuffle_each_iteration, "shuffle", inputs) {}
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<ShuffleStream<T>>(open_stream<T>(input()), params().buffer_size,
                                              seeds());
  }
  ShareOf share_of() const override { return ShareOf::kInputAnyOrder; }
  bool only_shuffles() const override { return true; }
  /// A seed that nobody gave says nothing: it is another one in every process.
  std::string arguments() const override {
    const ShuffleOptions& options = params().options;
    return str_cat(params().buffer_size, options.seed ? str_cat(" seed ", *options.seed) : "",
                   options.reshuffle_each_iteration ? "" : " once");
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::shuffle(int64_t buffer_size, ShuffleOptions options) const {
  COHORT_CHECK_ARG(buffer_size >= 1,
                   "[dataset.shuffle] expected a buffer of at least 1 element, got ", buffer_size);
  return internal::data::with_step<internal::data::ShuffleNode>(
      node(), internal::data::ShuffleParams{buffer_size, options,
                                            internal::data::seed_or_default(options.seed)});
}

}  // namespace cohort::data
