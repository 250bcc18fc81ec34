// SPDX-License-Identifier: Apache-2.0
//
// DynamicEmbedding: an Embedding for ids of any size, whose rows are made in training.
//
//   keras::DynamicEmbedding(1000000, 16, {.admit_after = 3, .steps_to_live = 50000});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/autograd/dynamic_table.h"
#include "cohort/keras/layers/embedding.h"

namespace cohort::keras {

/// As DynamicTableOptions.
struct DynamicEmbeddingOptions {
  int64_t admit_after = 1;
  int64_t candidates = 0;
  /// "refuse", "least_recently_used" or "least_frequently_used".
  std::string when_full = "least_recently_used";
  std::optional<int64_t> steps_to_live = {};
  std::optional<int64_t> seed = {};
  double minval = -0.05;
  double maxval = 0.05;
  std::optional<double> default_value = {};
  bool mask_zero = false;  ///< The number 0 is padding: masked.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct DynamicEmbeddingConfig : DynamicEmbeddingOptions {
  int64_t capacity = 0;
  int64_t output_dim = 0;
  static void fields(auto& c, auto&& f) {
    f.required("capacity", c.capacity);
    f.required("output_dim", c.output_dim);
    f("admit_after", c.admit_after);
    f("candidates", c.candidates);
    f("when_full", c.when_full);
    f("steps_to_live", c.steps_to_live);
    f("seed", c.seed);
    f("minval", c.minval);
    f("maxval", c.maxval);
    f("default_value", c.default_value);
    f("mask_zero", c.mask_zero);
  }
};

class DynamicEmbeddingLayer : public internal::RowsLayer<DynamicEmbeddingConfig> {
 public:
  explicit DynamicEmbeddingLayer(DynamicEmbeddingConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  /// Of DynamicEmbedding.
  const DynamicTable& table() const;

 protected:
  TrackedParts tracked_parts() const override;
  std::vector<Variable> stored_weights() const override;

 private:
  DynamicTable table_;
  bool has_table_ = false;  // not where build() has thrown
};

/// Rows by ids, which are any 64-bit integers; `capacity` of them have one at a time. In training
/// an id gets a row when it was seen admit_after times, and may lose it: see DynamicTable. Files of
/// models and checkpoints have who has which row, too.
/// Shapes: [b, ...] to [b, ..., output_dim]; weight embeddings [capacity, output_dim].
/// Errors: InvalidArgument for what are no integers, and for options that make no sense;
///         Unimplemented under strategies of several workers that have copies.
class DynamicEmbedding : public Layer {
 public:
  DynamicEmbedding(int64_t capacity, int64_t output_dim, DynamicEmbeddingOptions options = {});
  /// Who has rows. Errors: FailedPrecondition before the layer is built.
  DynamicTable table() const;
};

}  // namespace cohort::keras
