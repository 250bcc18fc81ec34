// SPDX-License-Identifier: Apache-2.0
//
// Dense layers, lookups, and layers that only training knows.
#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

Values identity(const Call& c) { return only(c.in[0].name); }

Values dense(const Call& c) {
  std::string y;
  if (c.rank() == 2 && c.has_weight("bias")) {
    y = c.g("Gemm", {c.x(), c.weight("kernel"), c.weight("bias")});
  } else {
    y = c.g("MatMul", {c.x(), c.weight("kernel")});
    if (c.has_weight("bias")) y = c.g("Add", {y, c.weight("bias")});
  }
  return only(activate(c, c.config.at("activation"), y));
}

Values einsum_dense(const Call& c) {
  std::string y =
      c.g("Einsum", {c.x(), c.weight("kernel")}, {{"equation", c.config.text("equation")}});
  if (c.has_weight("bias")) y = c.g("Add", {y, c.weight("bias")});
  return only(activate(c, c.config.at("activation"), y));
}

std::string whole_numbers(const Call& c) {
  const DType dtype = c.in[0].spec.dtype;
  const bool counts = dtype == kInt64 || dtype == kInt32;
  return counts ? c.in[0].name : c.g.cast(c.in[0].name, kInt64);
}

Values embedding(const Call& c) {
  const std::string rows = whole_numbers(c);
  std::string mask;
  if (c.config.boolean("mask_zero")) {
    const std::string wide = c.g.cast(rows, kInt64);
    mask = c.g("Not", {c.g("Equal", {wide, c.g.integer(0)})});
  }
  return only(c.g("Gather", {c.weight("embeddings"), rows}), mask);
}

Values masking(const Call& c) {
  const std::string same = c.g("Equal", {c.x(), c.g.number(c.config.number("mask_value"))});
  const std::string differs = c.g.cast(c.g("Not", {same}), kFloat32);
  const std::string any = c.g("ReduceMax", {differs, c.g.ints({-1})});
  const std::string counts = c.g.cast(any, kBool);
  const std::string mask = c.g("Squeeze", {counts, c.g.ints({-1})});
  return only(c.g("Where", {counts, c.x(), c.g.number(0)}), mask);
}

// Outside of training the kernel is as it was left.
Values spectral_normalization(const Call& c) {
  return c.exporter.convert(c.layer.sub_layers().at(0).base(), c.in);
}

}  // namespace

void add_core(Conversions& all) {
  for (const char* name :
       {"Identity", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
        "GaussianDropout", "GaussianNoise", "AlphaDropout", "ActivityRegularization"}) {
    all[name] = {identity, false, true};
  }
  all["Dense"] = {dense};
  all["EinsumDense"] = {einsum_dense};
  all["Embedding"] = {embedding, true};
  all["ReversibleEmbedding"] = {embedding, true};
  all["Masking"] = {masking, true};
  all["SpectralNormalization"] = {spectral_normalization};
}

}  // namespace cohort::keras::internal::onnx
