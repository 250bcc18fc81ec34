// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/dynamic_embedding.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"

namespace cohort::keras {
namespace {

WhenFull when_full(const std::string& name) {
  if (name == "refuse") return WhenFull::kRefuse;
  if (name == "least_recently_used") return WhenFull::kLeastRecentlyUsed;
  if (name == "least_frequently_used") return WhenFull::kLeastFrequentlyUsed;
  throw InvalidArgument(
      str_cat("[dynamic_embedding] expected when_full of refuse, least_recently_used or "
              "least_frequently_used, got ",
              name));
}

DynamicTableOptions table_options(const DynamicEmbeddingConfig& o) {
  std::optional<uint64_t> seed;
  if (o.seed) seed = static_cast<uint64_t>(*o.seed);
  return {.admit_after = o.admit_after,
          .candidates = o.candidates,
          .when_full = when_full(o.when_full),
          .steps_to_live = o.steps_to_live,
          .seed = seed,
          .minval = o.minval,
          .maxval = o.maxval,
          .default_value = o.default_value};
}

}  // namespace

DynamicEmbeddingLayer::DynamicEmbeddingLayer(DynamicEmbeddingConfig config)
    : RowsLayer(std::move(config)) {
  const DynamicEmbeddingConfig& o = this->config();
  COHORT_CHECK_ARG(o.capacity > 0 && o.output_dim > 0,
                   "[dynamic_embedding] expected capacity and output_dim > 0, got ", o.capacity,
                   " and ", o.output_dim);
  table_options(o).check("[dynamic_embedding] ");
  set_autocast(false);
}

void DynamicEmbeddingLayer::build(const Shape&) {
  const DynamicEmbeddingConfig& o = config();
  const Variable rows = add_weight({.name = "embeddings",
                                    .shape = {o.capacity, o.output_dim},
                                    .dtype = o.dtype.variable_dtype(),
                                    .initializer = "zeros"});
  table_ = DynamicTable(rows, table_options(o));
  has_table_ = true;
}

Tensor DynamicEmbeddingLayer::call(const Tensor& input, const CallArgs& args) {
  if (args.training && trainable()) table_.see(input);
  return table_.lookup(input).to(config().dtype.compute_dtype());
}

const DynamicTable& DynamicEmbeddingLayer::table() const {
  COHORT_CHECK_STATE(built(), "[dynamic_embedding.table] expected ", name(),
                     " to have weights, got a layer that was never called");
  return table_;
}

TrackedParts DynamicEmbeddingLayer::tracked_parts() const {
  TrackedParts parts = LayerImpl::tracked_parts();
  if (parts.growing || parts.values.empty() || !has_table_) return parts;
  for (TrackedValue& value : table_.trackable()->parts().values) {
    value.name = "ids";
    parts.values.push_back(std::move(value));
  }
  return parts;
}

std::vector<Variable> DynamicEmbeddingLayer::stored_weights() const {
  std::vector<Variable> weights = LayerImpl::stored_weights();
  if (!weights.empty() && has_table_) weights.push_back(table_.map());
  return weights;
}

DynamicEmbedding::DynamicEmbedding(int64_t capacity, int64_t output_dim,
                                   DynamicEmbeddingOptions options)
    : Layer(std::make_shared<DynamicEmbeddingLayer>(
          DynamicEmbeddingConfig{std::move(options), capacity, output_dim})) {}

DynamicTable DynamicEmbedding::table() const {
  return static_cast<DynamicEmbeddingLayer&>(base()).table();
}

}  // namespace cohort::keras
