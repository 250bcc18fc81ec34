// SPDX-License-Identifier: Apache-2.0
//
// Sources of numbers without end: counter and random.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/iteration_seeds.h"

namespace cohort::internal::data {
namespace {

Element number(int64_t value) { return from_vector<int64_t>({value}, Shape{}); }

class CounterStream final : public ElementStream {
 public:
  CounterStream(int64_t start, int64_t step)
      : next_(static_cast<uint64_t>(start)), step_(static_cast<uint64_t>(step)) {}
  bool next(Element& out) override {
    check_cancelled();
    out = number(static_cast<int64_t>(next_));
    next_ += step_;
    return true;
  }
  void save(StateWriter& out) override { out.put_int(static_cast<int64_t>(next_)); }
  void restore(StateReader& in) override { next_ = static_cast<uint64_t>(in.get_int()); }

 private:
  uint64_t next_;  ///< Unsigned numbers wrap.
  const uint64_t step_;
};

class CounterNode final : public DatasetNode {
 public:
  CounterNode(int64_t start, int64_t step)
      : DatasetNode("counter", TensorSpec{{}, kInt64}, {}), start_(start), step_(step) {}
  int64_t cardinality() const override { return kInfiniteCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CounterStream>(start_, step_);
  }
  std::string arguments() const override { return str_cat(start_, " ", step_); }

 private:
  const int64_t start_;
  const int64_t step_;
};

class RandomStream final : public ElementStream {
 public:
  explicit RandomStream(std::shared_ptr<IterationSeeds> seeds) : random_(std::move(seeds)) {}
  bool next(Element& out) override {
    check_cancelled();
    out = number(static_cast<int64_t>(random_.below(uint64_t{1} << 32)));
    return true;
  }
  void save(StateWriter& out) override { random_.save(out); }
  void restore(StateReader& in) override { random_.restore(in); }

 private:
  IterationRandom random_;
};

class RandomNode final : public WithIterationSeeds<DatasetNode> {
 public:
  explicit RandomNode(const RandomOptions& options)
      : WithIterationSeeds(seed_or_default(options.seed), options.rerandomize_each_iteration,
                           "random", TensorSpec{{}, kInt64}, std::vector<NodePtr>()),
        options_(options) {}
  int64_t cardinality() const override { return kInfiniteCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<RandomStream>(seeds());
  }
  /// A seed that nobody gave says nothing: it is another one in every process.
  std::string arguments() const override {
    return str_cat(options_.seed ? str_cat("seed ", *options_.seed) : "",
                   options_.rerandomize_each_iteration ? " each" : "");
  }

 private:
  const RandomOptions options_;
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::counter(int64_t start, int64_t step) {
  return Dataset(std::make_shared<internal::data::CounterNode>(start, step));
}
Dataset Dataset::random(RandomOptions options) {
  return Dataset(std::make_shared<internal::data::RandomNode>(options));
}

}  // namespace cohort::data
