// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/image_mixing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/image_colors.h"
#include "cohort/keras/layers/image_geometry.h"
#include "cohort/keras/layers/internal/draws.h"

namespace cohort::keras {
namespace {

// Numbers of one stream, one after the other.
class Sequence {
 public:
  explicit Sequence(const cohort::internal::runtime::RandomStream& stream) : stream_(stream) {}
  /// In (0, 1).
  double uniform() { return (static_cast<double>(stream_.word(next_++)) + 0.5) / 4294967296.0; }
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }
  /// The logarithm of a gamma-distributed number (Marsaglia and Tsang, 2000), which itself may be
  /// too small for a double.
  double log_gamma(double shape) {
    if (shape < 1) return log_gamma(shape + 1) + std::log(uniform()) / shape;
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v <= 0) continue;
      if (std::log(uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v);
    }
  }

 private:
  const cohort::internal::runtime::RandomStream stream_;
  uint64_t next_ = 0;
};

Tensor as_column(const Tensor& each, int64_t axes) {
  Shape shape(static_cast<std::size_t>(axes), 1);
  shape[0] = each.size(0);
  return each.view(shape);
}

CutMixOptions with_factor(CutMixOptions options) {
  options.factor = options.factor.within("cut_mix", 0, 1);
  return options;
}

RandAugmentOptions with_factor(RandAugmentOptions options) {
  options.factor = options.factor.within("rand_augment", 0, 1);
  return options;
}

AugMixOptions with_factor(AugMixOptions options) {
  options.factor = options.factor.within("aug_mix", 0, 1);
  return options;
}

struct NamedLayer {
  const char* place;
  Layer layer;
};

// What RandAugment and AugMix draw from, as their options say.
template <class O>
std::vector<NamedLayer> augmentations(const O& o, bool all_ops) {
  std::vector<NamedLayer> all;
  const FactorRange& factor = o.factor;
  GeometryOptions places{.interpolation = o.interpolation, .seed = o.seed, .dtype = o.dtype};
  ColorOptions colors{.value_range = o.value_range, .seed = o.seed, .dtype = o.dtype};
  const auto put = [&](const char* place, Layer layer) {
    layer.base().set_name(place);
    all.push_back({place, std::move(layer)});
    if (!o.seed) return;
    ++*places.seed;  // or all would draw the same
    ++*colors.seed;
  };
  put("random_shear", RandomShear({.x_factor = factor,
                                   .y_factor = factor,
                                   .interpolation = o.interpolation,
                                   .seed = places.seed,
                                   .dtype = o.dtype}));
  put("random_translation", RandomTranslation(factor, factor, places));
  put("random_rotation", RandomRotation(factor, places));
  if (all_ops) {
    put("random_brightness", RandomBrightness(factor, colors));
    put("random_color_degeneration", RandomColorDegeneration(factor, colors));
    put("random_contrast", RandomContrast(factor, colors));
    put("random_sharpness", RandomSharpness(factor, colors));
  }
  put("random_posterization",
      RandomPosterization(std::max(1.0, std::floor(8 * factor.high)), colors));
  put("solarization", Solarization({.addition_factor = factor,
                                    .threshold_factor = factor,
                                    .value_range = o.value_range,
                                    .seed = colors.seed,
                                    .dtype = o.dtype}));
  put("auto_contrast", AutoContrast({.value_range = o.value_range, .dtype = o.dtype}));
  put("equalization", Equalization({.value_range = o.value_range, .dtype = o.dtype}));
  return all;
}

}  // namespace

Tensor MixingLayer::transform(const Tensor& images) {
  return images.numel() == 0 ? images : mix(images).images;
}

Element MixingLayer::call_nest(const Element& inputs, const CallArgs& args) {
  if (inputs.is_tensor()) return call(inputs.tensor(), args);
  const std::vector<std::string>& names = inputs.names();
  COHORT_CHECK_ARG(names.size() == 2 && std::ranges::count(names, "images") == 1 &&
                       std::ranges::count(names, "labels") == 1,
                   "[", name(), "] expected images, or a nest of images and labels, got ",
                   inputs.spec().to_string());
  const c10::Device place = inputs["images"].tensor().device();
  const Tensor images = inputs["images"].tensor().to(at::kCPU);  // as ImageLayer::call
  const Tensor labels = inputs["labels"].tensor().to(at::kCPU);
  COHORT_CHECK_ARG(images.dim() == 4 && labels.dim() == 2 && labels.size(0) == images.size(0), "[",
                   name(), "] expected a batch of images and labels [b, classes] for them, got ",
                   bracketed(images.sizes()), " and ", bracketed(labels.sizes()));
  const DType dtype = dtype_policy().compute_dtype();
  const Tensor x = images.to(dtype);
  if (!args.training || images.numel() == 0) {
    return Element::named({{"images", x.to(place)}, {"labels", labels.to(place)}});
  }
  const Mix mixed = mix(channels_first() ? x.movedim(1, -1) : x);
  const Tensor own = labels.is_floating_point() ? labels : labels.to(dtype);
  const Tensor weight = as_column(mixed.weight, 2).to(own.scalar_type());
  const Tensor y = weight * own + (1 - weight) * own.index_select(0, mixed.others);
  const Tensor out = channels_first() ? mixed.images.movedim(-1, 1) : mixed.images;
  return Element::named({{"images", out.to(place)}, {"labels", y.to(place)}});
}

ElementSpec MixingLayer::compute_output_spec(const ElementSpec& inputs) const { return inputs; }

Tensor MixingLayer::drawn_order(int64_t count) const {
  return from_vector<int64_t>(cohort::internal::runtime::random_permutation(draws().next(), count),
                              {count});
}

Tensor MixingLayer::drawn_beta(double alpha, int64_t count) const {
  Sequence numbers(draws().next());
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) {
    const double a = numbers.log_gamma(alpha), b = numbers.log_gamma(alpha);
    out.push_back(1 / (1 + std::exp(b - a)));
  }
  return from_vector<double>(out, {count});
}

MixUpLayer::MixUpLayer(MixUpOptions options) : LayerImpl(std::move(options)) {
  COHORT_CHECK_ARG(config().alpha > 0, "[mix_up] expected alpha > 0, got ", config().alpha);
  set_up(config().data_format, config().seed);
}

MixingLayer::Mix MixUpLayer::mix(const Tensor& images) {
  const int64_t count = images.size(0);
  const Tensor others = drawn_order(count);
  const Tensor weight = drawn_beta(config().alpha, count).to(images.options());
  const Tensor each = as_column(weight, 4);
  return {each * images + (1 - each) * images.index_select(0, others), others, weight};
}

CutMixLayer::CutMixLayer(CutMixOptions options) : LayerImpl(with_factor(std::move(options))) {
  set_up(config().data_format, config().seed);
}

MixingLayer::Mix CutMixLayer::mix(const Tensor& images) {
  constexpr double kLeast = 1e-6;
  const int64_t count = images.size(0);
  const double alpha =
      draws().uniform(config().factor.low, config().factor.high, {1}).item<double>() + kLeast;
  const Tensor side = as_column((1 - drawn_beta(alpha, count)).sqrt(), 4).to(images.options());
  const auto inside = [&](int64_t axis) {
    const int64_t size = images.size(axis);
    const Tensor first = one_each(images, {0, 1}) * (1 - side) * size;
    Shape shape = {1, 1, 1, 1};
    shape[static_cast<std::size_t>(axis)] = size;
    const Tensor at = at::arange(size, images.options()).view(shape);
    return at.ge(first).logical_and(at < first + side * size);
  };
  const Tensor part = inside(2).logical_and(inside(1));
  const Tensor others = drawn_order(count);
  return {at::where(part, images.index_select(0, others), images), others,
          1 - side.square().flatten()};
}

RandAugmentLayer::RandAugmentLayer(RandAugmentOptions options)
    : LayerImpl(with_factor(std::move(options))) {
  const RandAugmentOptions& o = config();
  COHORT_CHECK_ARG(o.num_ops >= 0, "[rand_augment] expected num_ops >= 0, got ", o.num_ops);
  set_up(o.data_format, o.seed);
  for (const auto& [place, layer] : augmentations(o, true)) track(layer, place);
}

// Not by their first calls, for replicas draw unlike layers.
void RandAugmentLayer::build(const Shape& input_shape) {
  for (const Layer& layer : sub_layers()) layer.base().ensure_built(input_shape);
}

Tensor RandAugmentLayer::transform(const Tensor& images) {
  const auto stream = draws().next();
  const std::vector<Layer>& layers = sub_layers();
  Tensor x = images;
  for (int64_t i = 0; i < config().num_ops; ++i) {
    const uint64_t which =
        cohort::internal::runtime::uniform_below(stream, static_cast<uint64_t>(i), layers.size());
    x = layers[which](x, {.training = true});
  }
  return x;
}

AugMixLayer::AugMixLayer(AugMixOptions options) : LayerImpl(with_factor(std::move(options))) {
  const AugMixOptions& o = config();
  constexpr int64_t kMost = 1000;
  COHORT_CHECK_ARG(
      o.num_chains > 0 && o.num_chains <= kMost && o.chain_depth >= 0 && o.chain_depth <= kMost,
      "[aug_mix] expected num_chains > 0 and chain_depth >= 0, both at most ", kMost, ", got ",
      o.num_chains, " and ", o.chain_depth);
  COHORT_CHECK_ARG(o.alpha > 0, "[aug_mix] expected alpha > 0, got ", o.alpha);
  set_up(o.data_format, o.seed);
  for (const auto& [place, layer] : augmentations(o, o.all_ops)) track(layer, place);
}

void AugMixLayer::build(const Shape& input_shape) {
  for (const Layer& layer : sub_layers()) layer.base().ensure_built(input_shape);
}

Tensor AugMixLayer::transform(const Tensor& images) {
  const AugMixOptions& o = config();
  Sequence numbers(draws().next());
  std::vector<double> shares;
  for (int64_t i = 0; i < o.num_chains; ++i) shares.push_back(numbers.log_gamma(o.alpha));
  const double largest = *std::ranges::max_element(shares);
  double sum = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  const double a = numbers.log_gamma(o.alpha), b = numbers.log_gamma(o.alpha);
  const double kept = 1 / (1 + std::exp(b - a));

  const std::vector<Layer>& layers = sub_layers();
  const double choices = static_cast<double>(layers.size() + 1);
  Tensor mixed = at::zeros_like(images);
  for (const double share : shares) {
    Tensor x = images;
    for (int64_t i = 0; i < o.chain_depth; ++i) {
      const auto which = static_cast<std::size_t>(numbers.uniform() * choices);
      if (which < layers.size()) x = layers[which](x, {.training = true});
    }
    mixed = mixed + x * (share / sum);
  }
  return (kept * images + (1 - kept) * mixed).clamp(o.value_range.low, o.value_range.high);
}

}  // namespace cohort::keras
