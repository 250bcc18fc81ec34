// SPDX-License-Identifier: Apache-2.0
//
// Attention: which queries see which values is a bool value [b or 1, tq, tv], or empty: all do.
#include <algorithm>
#include <cmath>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

// One of the sub-layers of an attention: its kernel as a matrix.
struct Projection {
  const Call& c;
  const LayerBase& layer;

  // x: [..., in axes], of which there are `in`. Shapes: result [b, t, all that it gives].
  std::string operator()(const std::string& x, int64_t in = 1) const {
    const Tensor kernel = weight_of(layer, "kernel");
    const Tensor flat = kernel.flatten(0, in - 1).flatten(1);
    const std::string y = c.g("MatMul", {x, c.g.constant(flat, layer.name() + "/kernel")});
    if (!c.config.boolean("use_bias")) return y;
    return c.g("Add",
               {y, c.g.constant(weight_of(layer, "bias").flatten(), layer.name() + "/bias")});
  }
};

std::string both(const Call& c, const std::string& a, const std::string& b) {
  return a.empty() ? b : c.g("And", {a, b});
}

// A constant [1, tq, tv] of what a function of the two positions says.
template <class F>
std::string of_positions(const Call& c, F sees) {
  const int64_t queries = c.shape(0)[1], values = c.shape(1)[1];
  if (queries == kUnknownDim || values == kUnknownDim) c.refuse("over steps of unknown number");
  std::vector<int32_t> all;
  for (int64_t q = 0; q < queries; ++q) {
    for (int64_t v = 0; v < values; ++v) all.push_back(sees(q, v) ? 1 : 0);
  }
  return c.g.constant(from_vector<int32_t>(all, {1, queries, values}).to(kBool), "sees");
}

std::string causal(const Call& c) {
  return of_positions(c, [](int64_t q, int64_t v) { return v <= q; });
}

std::string column(const Call& c, const std::string& mask, int64_t axis) {
  return c.g("Unsqueeze", {mask, c.g.ints({axis})});
}

// [b, t, heads * n] as [b, heads, t, n].
std::string by_heads(const Call& c, const std::string& x, int64_t heads, int64_t features) {
  const std::string parts = c.g("Reshape", {x, c.g.ints({0, 0, heads, features})});
  return transpose(c, parts, {0, 2, 1, 3});
}

// Of heads that several of the query share, each again for all of these.
std::string repeated(const Call& c, const std::string& x, int64_t heads, int64_t times) {
  if (times == 1) return x;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < heads * times; ++i) order.push_back(i / times);
  return c.g("Gather", {x, c.g.ints(order)}, {{"axis", int64_t{1}}});
}

std::string pairs(const Call& c) {
  std::string seen;
  const auto mask = [&](std::size_t i) { return i < c.in.size() ? c.in[i].mask : std::string(); };
  if (!mask(0).empty()) seen = column(c, mask(0), -1);
  for (const std::size_t i : {1, 2}) {
    if (!mask(i).empty()) seen = both(c, seen, column(c, mask(i), -2));
  }
  if (c.told.use_causal_mask) seen = both(c, seen, causal(c));
  if (const Config& window = c.config.at("sliding_window"); !window.is_null()) {
    const int64_t size = window.integer();
    seen = both(c, seen,
                of_positions(c, [size](int64_t q, int64_t v) { return std::abs(q - v) < size; }));
  }
  if (!c.told.attention_mask.empty()) {
    const Value& given = c.told.attention_mask[0];
    if (given.spec.shape.size() != 3) c.refuse("with an attention_mask for each head");
    const bool is_bool = given.spec.dtype == kBool;
    seen = both(c, seen, is_bool ? given.name : c.g.cast(given.name, kBool));
  }
  return seen;
}

struct Heads {
  int64_t query, key, key_dim, value_dim;
};

Values attended(const Call& c, const Heads& heads) {
  if (c.rank() != 3) c.refuse("of inputs with more than three axes");
  const bool gated = c.config.boolean("use_gate");
  const auto layer = [&](std::size_t i) {
    return Projection{c, c.layer.sub_layers().at(i).base()};
  };
  const std::size_t value_at = gated ? 3 : 2;
  const int64_t times = heads.query / heads.key;
  const std::string query = c.x(0), value = c.x(1), key = c.x(c.in.size() > 2 ? 2 : 1);
  const std::string q = by_heads(c, layer(0)(query), heads.query, heads.key_dim);
  const std::string k =
      repeated(c, by_heads(c, layer(1)(key), heads.key, heads.key_dim), heads.key, times);
  const std::string v = repeated(c, by_heads(c, layer(value_at)(value), heads.key, heads.value_dim),
                                 heads.key, times);
  const double scale = 1 / std::sqrt(static_cast<double>(heads.key_dim));
  std::string scores =
      c.g("MatMul", {c.g("Mul", {q, c.g.number(scale)}), transpose(c, k, {0, 1, 3, 2})});
  if (std::string seen = pairs(c); !seen.empty()) {
    seen = c.g("Unsqueeze", {seen, c.g.ints({1})});
    scores = c.g("Where", {seen, scores, c.g.number(-1e9)});
    scores = c.g("Softmax", {scores});
    // Rows that see nothing: as Keras's layer, which goes another way where it drops scores.
    if (c.config.number("dropout") > 0) scores = c.g("Where", {seen, scores, c.g.number(0)});
  } else {
    scores = c.g("Softmax", {scores});
  }
  std::string y = transpose(c, c.g("MatMul", {scores, v}), {0, 2, 1, 3});
  y = c.g("Reshape", {y, c.g.ints({0, 0, heads.query * heads.value_dim})});
  if (gated) y = c.g("Mul", {y, c.g("Sigmoid", {layer(2)(query)})});
  y = layer(value_at + 1)(y, 2);
  const Shape out =
      c.layer.compute_output_spec(data::ElementSpec::tuple({c.in[0].spec, c.in[1].spec}))
          .leaf()
          .shape;
  if (out.size() > 3) y = reshape(c, y, out);
  return only(y, c.in[0].mask);
}

Values multi_head(const Call& c) {
  const int64_t heads = c.config.integer("num_heads"), key_dim = c.config.integer("key_dim");
  return attended(c, {heads, heads, key_dim, c.config.integer("value_dim")});
}

Values grouped_query(const Call& c) {
  const int64_t dim = c.config.integer("head_dim");
  return attended(
      c, {c.config.integer("num_query_heads"), c.config.integer("num_key_value_heads"), dim, dim});
}

// tanh(query + key) of each pair, [b, tq, tv, n].
std::string sums_of_pairs(const Call& c, const std::string& query, const std::string& key,
                          const std::string& scale) {
  std::string sums = c.g("Add", {column(c, query, -2), column(c, key, -3)});
  if (!scale.empty()) sums = c.g("Mul", {sums, scale});
  return c.g("Tanh", {sums});
}

std::string sum_of_features(const Call& c, const std::string& x) {
  return c.g("ReduceSum", {x, c.g.ints({-1})}, {{"keepdims", int64_t{0}}});
}

// Softmax of the scores, times the values.
Values weighted(const Call& c, const std::string& scores) {
  std::string seen = c.in[1].mask.empty() ? std::string() : column(c, c.in[1].mask, -2);
  if (c.told.use_causal_mask) seen = both(c, seen, causal(c));
  std::string weights = scores;
  if (!seen.empty()) {
    weights = c.g("Where", {seen, weights, c.g("Sub", {weights, c.g.number(1e9)})});
  }
  std::string y = c.g("MatMul", {c.g("Softmax", {weights}), c.x(1)});
  if (const std::string& mask = c.in[0].mask; !mask.empty()) {
    y = c.g("Where", {column(c, mask, -1), y, c.g.number(0)});
  }
  return only(y, c.in[0].mask);
}

Values dot_attention(const Call& c) {
  const std::string query = c.x(0), key = c.x(c.in.size() > 2 ? 2 : 1);
  const std::string scale = c.config.boolean("use_scale") ? c.weight("scale") : std::string();
  if (c.config.text("score_mode") == "concat") {
    const std::string sums = sum_of_features(c, sums_of_pairs(c, query, key, scale));
    return weighted(c, c.g("Mul", {sums, c.weight("concat_score_weight")}));
  }
  const std::string dots = c.g("MatMul", {query, transpose(c, key, {0, 2, 1})});
  return weighted(c, scale.empty() ? dots : c.g("Mul", {dots, scale}));
}

Values additive_attention(const Call& c) {
  const std::string query = c.x(0), key = c.x(c.in.size() > 2 ? 2 : 1);
  std::string sums = sums_of_pairs(c, query, key, {});
  if (c.config.boolean("use_scale")) sums = c.g("Mul", {sums, c.weight("scale")});
  return weighted(c, sum_of_features(c, sums));
}

}  // namespace

void add_attention(Conversions& all) {
  all["MultiHeadAttention"] = {multi_head, true};
  all["GroupQueryAttention"] = {grouped_query, true};
  all["GroupedQueryAttention"] = {grouped_query, true};
  all["Attention"] = {dot_attention, true};
  all["AdditiveAttention"] = {additive_attention, true};
}

}  // namespace cohort::keras::internal::onnx
