// SPDX-License-Identifier: Apache-2.0
//
// A layer with a table, of which a step needs some rows.
#pragma once

#include <string>

#include "cohort/autograd/embedding.h"
#include "cohort/keras/layer.h"

namespace cohort::testing {

/// Means of words' rows.
struct WordMeans : keras::LayerBase {
  Variable table;
  void build(const Shape&) override {
    table = add_weight({.name = "table", .shape = {50, 4}, .initializer = "random_normal"});
  }
  Tensor call(const Tensor& ids, const keras::CallArgs&) override {
    return embedding_lookup(table, ids.to(kInt64)).mean(1);
  }
  Shape compute_output_shape(const Shape& in) const override { return {in[0], 4}; }
  std::string class_name() const override { return "WordMeans"; }
};

}  // namespace cohort::testing
