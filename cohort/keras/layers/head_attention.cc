// SPDX-License-Identifier: Apache-2.0
//
// MultiHeadAttention and GroupedQueryAttention.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <concepts>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/attention.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/kernel_and_bias.h"

namespace cohort::keras {
namespace internal {
namespace {

struct ProjectionOptions {
  Shape in = {};   // the last axes of the input
  Shape out = {};  // what they become
  bool use_bias = true;
  bool sigmoid = false;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto&, auto&&) {}
};

int64_t product(const Shape& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// What Keras has an EinsumDense for: kernel [in..., out...], bias [out...].
class Projection final : public LayerImpl<ProjectionOptions> {
 public:
  using LayerImpl::LayerImpl;
  std::string class_name() const override { return "EinsumDense"; }
  // The attention heeds its inputs' masks: they are not lost here, and go no further.
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element&, const Element&) const override { return {}; }
  void build(const Shape&) override {
    const ProjectionOptions& o = config();
    Shape shape = o.in;
    shape.insert(shape.end(), o.out.begin(), o.out.end());
    kernel_ = add_weight(kernel_options(o, std::move(shape)));
    if (o.use_bias) bias_ = add_weight(bias_options(o, o.out));
  }
  Tensor call(const Tensor& x, const CallArgs&) override {
    const ProjectionOptions& o = config();
    const int64_t in = product(o.in), out = product(o.out);
    const Tensor kernel = kernel_.value().to(x.scalar_type()).reshape({in, out});
    Shape shape(x.sizes().begin(), x.sizes().end() - static_cast<std::ptrdiff_t>(o.in.size()));
    const int64_t rows = product(shape);
    const Tensor flat = x.reshape({rows, in});
    Tensor y = bias_ ? bias_.value().to(x.scalar_type()).reshape({out}).addmm(flat, kernel)
                     : flat.mm(kernel);
    if (o.sigmoid) y = y.sigmoid();
    shape.insert(shape.end(), o.out.begin(), o.out.end());
    return y.reshape(shape);
  }

 private:
  Variable kernel_, bias_;
};

template <class C>
Layer projection(const C& from, const char* name, const Shape& in, const Shape& out,
                 bool sigmoid = false) {
  ProjectionOptions o{.in = in, .out = out, .use_bias = from.use_bias, .sigmoid = sigmoid};
  o.kernel_initializer = from.kernel_initializer;
  o.bias_initializer = from.bias_initializer;
  o.kernel_regularizer = from.kernel_regularizer;
  o.bias_regularizer = from.bias_regularizer;
  o.activity_regularizer = from.activity_regularizer;
  o.kernel_constraint = from.kernel_constraint;
  o.bias_constraint = from.bias_constraint;
  o.dtype = from.dtype;
  o.name = name;
  return std::make_shared<Projection>(std::move(o));
}

void check_inputs(std::size_t count, const std::string& name) {
  COHORT_CHECK_ARG(count == 2 || count == 3, "[", name,
                   "] expected {query, value} or {query, value, key}, got ", count, " inputs");
}

void check_no_flash(const std::optional<bool>& flash, const char* who) {
  if (!flash.value_or(false)) return;
  throw Unimplemented(str_cat("[", who,
                              "] expected flash_attention unset or false, got true: it is "
                              "not there yet"));
}

}  // namespace

HeadAttention::HeadAttention(std::string name) : NestLayer(std::move(name)) {}
HeadAttention::~HeadAttention() = default;

void HeadAttention::set_heads(const Heads& heads) {
  const auto positive = [&](const char* what, int64_t number) {
    COHORT_CHECK_ARG(number > 0, "[", class_name(), "] expected ", what, " > 0, got ", number);
  };
  positive("a number of heads", heads.query);
  positive("a number of heads of key and value", heads.key);
  positive("features of each head", heads.key_dim);
  positive("value features of each head", heads.value_dim);
  positive("sliding_window", heads.sliding_window.value_or(1));
  COHORT_CHECK_ARG(heads.query % heads.key == 0, "[", class_name(), "] expected the ", heads.key,
                   " heads of key and value to divide the query's, got ", heads.query);
  COHORT_CHECK_ARG(heads.dropout >= 0 && heads.dropout <= 1, "[", class_name(),
                   "] expected 0 <= dropout <= 1, got ", heads.dropout);
  heads_ = heads;
  if (heads.dropout > 0) {
    masks_ = std::make_unique<Draws>(heads.seed, Draws::Number::kOfTheUnseeded);
  }
}

TrackedParts HeadAttention::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  if (masks_ != nullptr) masks_->add_to(parts);
  return parts;
}

// The attributes of Keras's two classes: where files have the weights.
template <class C>
std::string attention_place(std::string_view projection) {
  const bool is_private = std::same_as<C, GroupedQueryAttentionConfig> || projection == "gate";
  const std::string_view name = projection == "attention_output" ? "output" : projection;
  return str_cat(is_private ? "_" : "", name, "_dense");
}

template <class C>
void HeadAttention::make_projections(const ElementSpec& inputs, const C& config,
                                     const Shape& axes) {
  check_inputs(inputs.size(), name());
  const Shape query = inputs[0].leaf().shape, value = inputs[1].leaf().shape;
  const Shape key = inputs.size() > 2 ? inputs[2].leaf().shape : value;
  const int64_t rank = static_cast<int64_t>(query.size());
  COHORT_CHECK_ARG(rank >= 3 && key.size() == query.size() && value.size() == query.size(), "[",
                   name(), "] expected inputs [batch, positions, features], got shapes ",
                   bracketed(query), ", ", bracketed(value), " and ", bracketed(key));
  axes_.clear();
  for (const int64_t axis : axes) {
    const int64_t at = axis < 0 ? rank + axis : axis;
    COHORT_CHECK_ARG(at > 0 && at < rank - 1, "[", name(),
                     "] expected attention axes between the "
                     "batch and the features, got ",
                     axis);
    axes_.push_back(at);
  }
  for (int64_t axis = 1; axes.empty() && axis < rank - 1; ++axis) axes_.push_back(axis);
  const Shape out = heads_.output.empty() ? Shape{query.back()} : heads_.output;
  const auto add = [&](const char* name, const Shape& from, const Shape& to, const Shape& built,
                       bool sigmoid = false) {
    projections_.push_back(projection(config, name, from, to, sigmoid));
    track(projections_.back(), attention_place<C>(name));
    projections_.back().base().ensure_built(built);
  };
  add("query", {query.back()}, {heads_.query, heads_.key_dim}, query);
  add("key", {key.back()}, {heads_.key, heads_.key_dim}, key);
  if (heads_.gate) add("gate", {query.back()}, {heads_.query, heads_.value_dim}, query, true);
  add("value", {value.back()}, {heads_.key, heads_.value_dim}, value);
  Shape between = query;
  between.back() = heads_.query;
  between.push_back(heads_.value_dim);
  add("attention_output", {heads_.query, heads_.value_dim}, out, between);
  built_for_ = {query, value};
  if (inputs.size() > 2) built_for_.push_back(key);
}

Config HeadAttention::get_build_config() const {
  if (!built()) return {};
  Config shapes = Config::object();
  const char* names[] = {"query_shape", "value_shape", "key_shape"};
  for (std::size_t i = 0; i < built_for_.size(); ++i) {
    shapes.set(names[i], ShapeValue::write(built_for_[i]));
  }
  return Config::object({{"shapes_dict", shapes}});
}

Tensor HeadAttention::projected(std::size_t i, const Tensor& x) const { return projections_[i](x); }

Tensor HeadAttention::pairs(const Tensor& query, const Tensor& value, const CallArgs& args) const {
  Tensor all;
  const auto join = [&all](const Tensor& more) {
    all = all.defined() ? all.logical_and(more) : more.to(kBool);
  };
  const auto mask_of = [&](std::size_t i) {
    const bool has = args.mask.is_tuple() && i < args.mask.size() && args.mask[i].has_value();
    return has ? args.mask[i].tensor() : Tensor();
  };
  if (const Tensor mask = mask_of(0); mask.defined()) join(mask.unsqueeze(-1));
  for (const std::size_t i : {1, 2}) {
    if (const Tensor mask = mask_of(i); mask.defined()) join(mask.unsqueeze(-2));
  }
  const int64_t queries = query.size(1), values = value.size(1);
  const at::TensorOptions there = query.options();
  if (args.use_causal_mask) join(at::ones({1, queries, values}, there.dtype(kBool)).tril());
  if (heads_.sliding_window) {
    const at::TensorOptions numbers = there.dtype(kInt64);
    const Tensor far =
        at::arange(queries, numbers).unsqueeze(-1) - at::arange(values, numbers).unsqueeze(0);
    join(far.abs().lt(*heads_.sliding_window).unsqueeze(0));
  }
  if (args.attention_mask.has_value()) join(args.attention_mask.tensor());
  return all;
}

// Axes of [b, ..., heads, features] so that those attended over stand before the features.
std::vector<int64_t> HeadAttention::order(int64_t rank) const {
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < rank - 1; ++axis) {
    if (std::find(axes_.begin(), axes_.end(), axis) == axes_.end()) order.push_back(axis);
  }
  order.insert(order.end(), axes_.begin(), axes_.end());
  order.push_back(rank - 1);
  return order;
}

HeadAttention::Attended HeadAttention::attend(const Tensor& query, const Tensor& key,
                                              const Tensor& value, const Tensor& mask,
                                              const CallArgs& args) {
  const int64_t rank = query.dim();
  const std::vector<int64_t> axes = order(rank);
  const int64_t attended = static_cast<int64_t>(axes_.size());
  const int64_t first = rank - 1 - attended;
  // [b, ..., heads, positions, features].
  const auto by_heads = [&](const Tensor& x) { return x.permute(axes).flatten(first, rank - 2); };
  const Tensor q = query.permute(axes), k = key.permute(axes);
  const Tensor queries = q.flatten(first, rank - 2) / std::sqrt(double(heads_.key_dim));
  Tensor scores = queries.matmul(by_heads(key).transpose(-2, -1));
  Shape pairs(scores.sizes().begin(), scores.sizes().end() - 2);
  for (const Tensor& x : {q, k}) {
    for (int64_t i = 0; i < attended; ++i) pairs.push_back(x.size(first + i));
  }
  const bool sums_to_one = heads_.dropout == 0 && !args.return_attention_scores && rank == 4;
  Tensor seen = mask;
  if (seen.defined()) {
    // Without heads it is for all of them; before it stand the axes that it has of the batch.
    while (seen.dim() < static_cast<int64_t>(pairs.size())) {
      seen = seen.unsqueeze(seen.dim() - 2 * attended);
    }
    seen = seen.expand(pairs).reshape(scores.sizes());
    const double far = scores.scalar_type() == kFloat16 ? -3e4 : -1e9;
    scores = scores.masked_fill(seen.logical_not(), far);
  }
  Tensor weights = scores.softmax(-1);
  if (seen.defined() && !sums_to_one) weights = weights.masked_fill(seen.logical_not(), 0);
  Tensor used = weights;
  if (args.training && heads_.dropout > 0) {
    used = used * masks_->keep_mask(shape_of(used), heads_.dropout, used);
  }
  Shape shape = shape_of(q);
  shape.back() = value.size(-1);
  std::vector<int64_t> back(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    back[static_cast<std::size_t>(axes[i])] = static_cast<int64_t>(i);
  }
  const Tensor output = used.matmul(by_heads(value)).reshape(shape).permute(back);
  return {output, weights.reshape(pairs)};
}

Element HeadAttention::call_nest(const Element& inputs, const CallArgs& args) {
  check_inputs(inputs.is_tuple() ? inputs.size() : 1, name());
  const Tensor query = inputs[0].tensor(), value = inputs[1].tensor();
  const Tensor key = inputs.size() > 2 ? inputs[2].tensor() : value;
  const Tensor mask = pairs(query, value, args);
  const std::size_t value_at = heads_.gate ? 3 : 2;
  const int64_t repeats = heads_.query / heads_.key;
  Tensor k = projected(1, key), v = projected(value_at, value);
  if (repeats > 1) {
    k = k.repeat_interleave(repeats, -2);
    v = v.repeat_interleave(repeats, -2);
  }
  Attended attended = attend(projected(0, query), k, v, mask, args);
  if (heads_.gate) attended.output = attended.output * projected(2, query);
  const Tensor output = projected(value_at + 1, attended.output);
  if (!args.return_attention_scores) return output;
  return {output, attended.scores};
}

ElementSpec HeadAttention::compute_output_spec(const ElementSpec& inputs) const {
  check_inputs(inputs.size(), name());
  Shape shape = inputs[0].leaf().shape;
  if (!heads_.output.empty()) {
    shape.pop_back();
    shape.insert(shape.end(), heads_.output.begin(), heads_.output.end());
  }
  return TensorSpec{.shape = std::move(shape), .dtype = dtype_policy().compute_dtype()};
}

Element HeadAttention::compute_mask(const Element&, const Element& mask) const {
  return mask.is_tuple() ? mask[0] : Element();
}

namespace {

MultiHeadAttentionConfig with_value_dim(MultiHeadAttentionConfig config) {
  if (!config.value_dim) config.value_dim = config.key_dim;
  return config;
}

}  // namespace
}  // namespace internal

MultiHeadAttentionLayer::MultiHeadAttentionLayer(MultiHeadAttentionConfig config)
    : LayerImpl(internal::with_value_dim(std::move(config))) {
  const MultiHeadAttentionConfig& o = this->config();
  internal::check_no_flash(o.flash_attention, "multi_head_attention");
  set_heads({.query = o.num_heads,
             .key = o.num_heads,
             .key_dim = o.key_dim,
             .value_dim = *o.value_dim,
             .dropout = o.dropout,
             .sliding_window = o.sliding_window,
             .seed = o.seed,
             .gate = o.use_gate,
             .output = o.output_shape.value_or(Shape())});
  set_activity_regularizer({});  // of the projections, not of the whole
}

void MultiHeadAttentionLayer::build_nest(const ElementSpec& inputs) {
  make_projections(inputs, config(), config().attention_axes.value_or(Shape()));
}

// Keras says which axes it has chosen.
Config MultiHeadAttentionLayer::get_config() const {
  Config config = LayerImpl::get_config();
  if (built()) config.set("attention_axes", ConfigValue<Shape>::write(axes()));
  return config;
}

GroupedQueryAttentionLayer::GroupedQueryAttentionLayer(GroupedQueryAttentionConfig config)
    : LayerImpl(std::move(config)) {
  const GroupedQueryAttentionConfig& o = this->config();
  internal::check_no_flash(o.flash_attention, "grouped_query_attention");
  set_heads({.query = o.num_query_heads,
             .key = o.num_key_value_heads,
             .key_dim = o.head_dim,
             .value_dim = o.head_dim,
             .dropout = o.dropout,
             .sliding_window = o.sliding_window,
             .seed = o.seed,
             .gate = o.use_gate});
}

void GroupedQueryAttentionLayer::build_nest(const ElementSpec& inputs) {
  make_projections(inputs, config(), {1});
}

MultiHeadAttention::MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                                       MultiHeadAttentionOptions options)
    : AttentionHandle(std::make_shared<MultiHeadAttentionLayer>(
          MultiHeadAttentionConfig{std::move(options), num_heads, key_dim})) {}

GroupedQueryAttention::GroupedQueryAttention(int64_t head_dim, int64_t num_query_heads,
                                             int64_t num_key_value_heads,
                                             GroupedQueryAttentionOptions options)
    : AttentionHandle(std::make_shared<GroupedQueryAttentionLayer>(GroupedQueryAttentionConfig{
          std::move(options), head_dim, num_query_heads, num_key_value_heads})) {}

}  // namespace cohort::keras
