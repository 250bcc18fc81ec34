// SPDX-License-Identifier: Apache-2.0
//
// Batches of elements of unlike shapes: padded_batch, ragged_batch, bucket_by_sequence_length.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/pipeline/internal/combine_node.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

constexpr const char* kBucket = "[dataset.bucket_by_sequence_length]";

/// Where elements of a length go, and what becomes of them.
struct BucketParams {
  ElementSpec spec;  ///< Of the batches.
  std::function<int64_t(const Element&)> length;
  std::vector<int64_t> boundaries;
  std::vector<int64_t> batch_sizes;
  std::vector<CombineFunction> combine;
  bool drop_remainder = false;
  bool bounded = false;  ///< Nothing may be as long as the last boundary.
  std::vector<double> padding_values;
};

class BucketNode final : public StepNode<BucketNode, BucketParams> {
 public:
  BucketNode(std::vector<NodePtr> inputs, BucketParams params)
      : StepNode(params, "bucket_by_sequence_length", params.spec, inputs) {}
  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    return n > 0 ? kUnknownCardinality : n;
  }
  std::unique_ptr<ElementStream> make_stream() const override;
  int64_t batch_rows() const override { return kUnknownDim; }
  std::string arguments() const override {
    const BucketParams& p = params();
    return str_cat(bracketed(p.boundaries), " ", bracketed(p.batch_sizes), " ", p.bounded, " ",
                   p.drop_remainder, " ", bracketed(p.padding_values));
  }
};

class BucketStream final : public ElementStream {
 public:
  explicit BucketStream(std::shared_ptr<const BucketNode> node)
      : node_(std::move(node)),
        input_(open_stream<Element>(*node_->inputs().front())),
        buckets_(plan_.batch_sizes.size()) {}

  bool next(Element& out) override {
    Element element;
    while (!input_ended_) {
      if (!input_->next(element)) {
        input_ended_ = true;
        break;
      }
      const std::size_t bucket = bucket_of(element);
      buckets_[bucket].push_back(std::move(element));
      if (static_cast<int64_t>(buckets_[bucket].size()) == plan_.batch_sizes[bucket]) {
        return emit(bucket, out);
      }
    }
    for (std::size_t b = 0; b < buckets_.size() && !plan_.drop_remainder; ++b) {
      if (!buckets_[b].empty()) return emit(b, out);
    }
    return false;
  }
  void save(StateWriter& out) override {
    out.put_int(index_);
    out.put_int(input_ended_ ? 1 : 0);
    for (const auto& bucket : buckets_) put_elements(out, bucket);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    index_ = in.get_int();
    input_ended_ = in.get_flag();
    for (auto& bucket : buckets_) bucket = get_elements(in);
    input_->restore(in);
  }

 private:
  std::size_t bucket_of(const Element& element) {
    const int64_t index = index_++;
    try {
      const int64_t length = plan_.length(element);
      const auto at = std::upper_bound(plan_.boundaries.begin(), plan_.boundaries.end(), length);
      COHORT_CHECK_ARG(at != plan_.boundaries.end() || !plan_.bounded,
                       "expected a length below the last boundary, to which buckets are padded, "
                       "got ",
                       length);
      return static_cast<std::size_t>(at - plan_.boundaries.begin());
    } catch (...) {
      rethrow_with_context(str_cat(node_->tag(), " element ", index, " of ", node_->path()));
    }
  }
  bool emit(std::size_t bucket, Element& out) {
    const std::vector<Element> parts = std::exchange(buckets_[bucket], {});
    out = plan_.combine[bucket](parts);
    return true;
  }

  const std::shared_ptr<const BucketNode> node_;
  const BucketParams& plan_ = node_->params();
  const std::unique_ptr<ElementStream> input_;
  std::vector<std::vector<Element>> buckets_;
  int64_t index_ = 0;
  bool input_ended_ = false;
};

std::unique_ptr<ElementStream> BucketNode::make_stream() const {
  return std::make_unique<BucketStream>(self());
}

void check_buckets(const BucketOptions& options) {
  const auto& boundaries = options.bucket_boundaries;
  COHORT_CHECK_ARG(options.bucket_batch_sizes.size() == boundaries.size() + 1, kBucket,
                   " expected ", boundaries.size() + 1,
                   " batch sizes, one more than boundaries, got ",
                   options.bucket_batch_sizes.size());
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    COHORT_CHECK_ARG(boundaries[i] < boundaries[i + 1], kBucket,
                     " expected boundaries that ascend, got ", bracketed(boundaries));
  }
  for (int64_t size : options.bucket_batch_sizes) {
    COHORT_CHECK_ARG(size >= 1, kBucket, " expected batch sizes of at least 1, got ",
                     bracketed(options.bucket_batch_sizes));
  }
  COHORT_CHECK_ARG(
      !options.no_padding || (options.padded_shapes.empty() && options.padding_values.empty() &&
                              !options.pad_to_bucket_boundary),
      kBucket,
      " no_padding cannot be combined with padded_shapes, padding_values or "
      "pad_to_bucket_boundary, got both");
}

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::padded_batch(int64_t size, std::vector<Shape> shapes,
                              PaddedBatchOptions options) const {
  const internal::data::NodePtr& input = node();
  COHORT_CHECK_ARG(size >= 1, "[dataset.padded_batch] expected a size of at least 1, got ", size);
  const std::string where = "[dataset.padded_batch]";
  ElementSpec spec =
      internal::data::padded_spec(where, input->spec(), shapes, options.padding_values,
                                  options.drop_remainder ? size : kUnknownDim);
  std::string more;
  for (const Shape& shape : shapes) more += " " + bracketed(shape);
  more += " " + bracketed(options.padding_values);
  internal::data::Padding padding{where, std::move(shapes), options.padding_values};
  return internal::data::with_combined_batches(
      input, {.operation = "padded_batch",
              .spec = std::move(spec),
              .size = size,
              .drop_remainder = options.drop_remainder,
              .combine =
                  [padding](std::span<const Element> parts) {
                    return internal::data::pad_elements(parts, padding);
                  },
              .more_arguments = std::move(more)});
}

Dataset Dataset::ragged_batch(int64_t size, BatchOptions options) const {
  const internal::data::NodePtr& input = node();
  COHORT_CHECK_ARG(size >= 1, "[dataset.ragged_batch] expected a size of at least 1, got ", size);
  const ElementSpec row = input->spec();
  return internal::data::with_combined_batches(
      input,
      {.operation = "ragged_batch",
       .spec = internal::data::ragged_batch_spec(row, options.drop_remainder ? size : kUnknownDim),
       .size = size,
       .drop_remainder = options.drop_remainder,
       .combine = [row](std::span<const Element> parts) {
         return internal::data::ragged_elements(parts, row, "[dataset.ragged_batch]");
       }});
}

Dataset Dataset::do_bucket(std::function<int64_t(const Element&)> length,
                           const BucketOptions& options) const {
  const internal::data::NodePtr& input = node();
  internal::data::check_buckets(options);
  const std::string where = internal::data::kBucket;
  const auto& boundaries = options.bucket_boundaries;
  internal::data::BucketParams plan{
      .spec = options.no_padding
                  ? internal::data::batched_spec(input->spec(), kUnknownDim)
                  : internal::data::padded_spec(where, input->spec(), options.padded_shapes,
                                                options.padding_values, kUnknownDim),
      .length = std::move(length),
      .boundaries = boundaries,
      .batch_sizes = options.bucket_batch_sizes,
      .combine = {},
      .drop_remainder = options.drop_remainder,
      .bounded = options.pad_to_bucket_boundary,
      .padding_values = options.padding_values};
  for (std::size_t b = 0; b <= boundaries.size(); ++b) {
    internal::data::Padding padding{where, options.padded_shapes, options.padding_values};
    if (options.pad_to_bucket_boundary) {
      padding.unknown_to = b < boundaries.size() ? boundaries[b] - 1 : kUnknownDim;
    }
    plan.combine.emplace_back(
        [padding, pads = !options.no_padding](std::span<const Element> parts) {
          return pads ? internal::data::pad_elements(parts, padding)
                      : internal::data::stack_elements(parts, padding.where);
        });
  }
  return internal::data::with_step<internal::data::BucketNode>(input, std::move(plan));
}

}  // namespace cohort::data
