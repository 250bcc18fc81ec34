// SPDX-License-Identifier: Apache-2.0
//
// shuffle: a buffer, and orders that follow from a seed and the number of the pass.
#include "cohort/base/check.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/order_node.h"
#include "cohort/data/pipeline/internal/pass_orders.h"
#include "cohort/data/pipeline/internal/shuffle_seed.h"

namespace cohort::internal {
namespace {

/// A buffer from which a random element leaves and the next one of the input takes its place.
template <class T>
class ShuffleStream final : public Stream<T> {
 public:
  ShuffleStream(std::unique_ptr<Stream<T>> input, int64_t buffer_size,
                std::shared_ptr<PassOrders> orders)
      : input_(std::move(input)),
        buffer_size_(static_cast<std::size_t>(buffer_size)),
        random_(std::move(orders)) {}

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
  PassRandom random_;
  std::vector<T> buffer_;
  bool input_ended_ = false;
};

class ShuffleNode final : public WithPassOrders<OrderNode<ShuffleNode>> {
 public:
  ShuffleNode(const NodePtr& input, int64_t buffer_size, const ShuffleOptions& options,
              uint64_t seed)
      : WithPassOrders(std::make_shared<PassOrders>(seed, options.reshuffle_each_iteration),
                       "shuffle", input),
        buffer_size_(buffer_size),
        options_(options),
        seed_(seed) {}
  int64_t cardinality() const override { return input().cardinality(); }
  template <class T>
  std::unique_ptr<Stream<T>> make() const {
    return std::make_unique<ShuffleStream<T>>(open_stream<T>(input()), buffer_size_, orders());
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ShuffleNode>(inputs[0], buffer_size_, options_, seed_);
  }
  /// A seed that nobody gave says nothing: it is another one in every process.
  std::string arguments() const override {
    return str_cat(buffer_size_, options_.seed ? str_cat(" seed ", *options_.seed) : "",
                   options_.reshuffle_each_iteration ? "" : " once");
  }

 private:
  const int64_t buffer_size_;
  const ShuffleOptions options_;
  const uint64_t seed_;  ///< Given or not.
};

}  // namespace

NodePtr make_shuffle_node(NodePtr input, int64_t buffer_size, const ShuffleOptions& options) {
  COHORT_CHECK_ARG(buffer_size >= 1,
                   "[dataset.shuffle] expected a buffer of at least 1 element, got ", buffer_size);
  const uint64_t seed = options.seed ? *options.seed : default_shuffle_seed();
  return std::make_shared<ShuffleNode>(input, buffer_size, options, seed);
}

}  // namespace cohort::internal
