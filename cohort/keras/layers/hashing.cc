// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/hashing.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/masked_fill.h>

#include <algorithm>
#include <span>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/category_codes.h"
#include "cohort/keras/layers/internal/hash_functions.h"

namespace cohort::keras {
namespace {

constexpr std::array<const char*, 4> kHashModes = {"int", "one_hot", "multi_hot", "count"};
constexpr std::array<const char*, 2> kCrossModes = {"int", "one_hot"};
constexpr uint64_t kCrossKey = 0xDECAFCAFFE;  // TensorFlow's

template <class C>
C with_known_hash_mode(const char* who, C config, std::span<const char* const> modes) {
  config.output_mode = internal::output_mode_of(who, config.output_mode, modes);
  const bool numbers = config.output_mode == "int";
  if (!config.dtype.dtype) config.dtype = numbers ? kInt64 : floatx();
  const DType dtype = *config.dtype.dtype;
  COHORT_CHECK_ARG(!numbers || dtype == kInt64 || dtype == kInt32, "[", who,
                   "] expected dtype int32 or int64 in output_mode int, got ", dtype_name(dtype));
  COHORT_CHECK_ARG(config.num_bins > 0, "[", who, "] expected num_bins above 0, got ",
                   config.num_bins);
  return config;
}

// Whole numbers as they are, such that float as Python's int() has them.
Tensor whole_numbers(const std::string& name, const Tensor& x) {
  COHORT_CHECK_ARG(x.scalar_type() != kBool, "[", name,
                   "] expected texts or numbers, got truth values");
  return x.detach().to(at::kCPU, kInt64).contiguous();
}

internal::TextBins bins_of(const HashingConfig& config, int64_t bins) {
  return {bins, config.salt ? std::optional(config.salt->key) : std::nullopt};
}

// Whether bins are counted from 1 on.
bool masks(const HashingConfig& config) {
  return config.mask_value != MaskValue() && config.num_bins > 1;
}

Shape shape_of_strings(const Element& strings) { return strings.spec().leaf().shape; }

}  // namespace

Config HashSalt::serialize() const { return Config::List{key[0], key[1]}; }

HashSalt HashSalt::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  COHORT_CHECK_ARG(config.list().size() == 2, "[salt] expected one number or two, got ", config);
  return {config.list()[0].integer(), config.list()[1].integer()};
}

ResultDType::operator DTypePolicy() const {
  return dtype && at::isFloatingType(*dtype) ? DTypePolicy(*dtype) : DTypePolicy();
}

Config ResultDType::serialize() const {
  return Config::object(
      {{"module", "keras"},
       {"class_name", "DTypePolicy"},
       {"config", Config::object({{"name", dtype_name(dtype.value_or(floatx()))}})},
       {"registered_name", nullptr}});
}

ResultDType ResultDType::deserialize(const Config& config) {
  if (config.is_null()) return {};
  return ConfigValue<DType>::read(config.is_text() ? config : config.at("config").at("name"));
}

Config MaskValue::serialize() const {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return {};
}

MaskValue MaskValue::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  return config.integer();
}

HashingLayer::HashingLayer(HashingConfig config)
    : LayerImpl(with_known_hash_mode("hashing", std::move(config), kHashModes)) {
  set_autocast(false);
}

Shape HashingLayer::compute_output_shape(const Shape& input_shape) const {
  return internal::encoded_shape(input_shape, config().output_mode, config().num_bins);
}

ElementSpec HashingLayer::compute_output_spec(const ElementSpec& inputs) const {
  return TensorSpec{compute_output_shape(inputs[0].leaf().shape), *config().dtype.dtype};
}

Tensor HashingLayer::encoded(const Tensor& bins) const {
  return internal::encode_categories(bins, config().output_mode, config().num_bins,
                                     *config().dtype.dtype);
}

Tensor HashingLayer::call(const Tensor& x, const CallArgs&) {
  const int64_t first = masks(config()) ? 1 : 0;
  const internal::TextBins bin_of = bins_of(config(), config().num_bins - first);
  const Tensor numbers = whole_numbers(name(), x);
  const auto* const in = numbers.const_data_ptr<int64_t>();
  Tensor bins = empty(shape_of(numbers), kInt64);
  auto* const out = bins.data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) out[i] = first + bin_of(in[i]);
  if (first == 1) {
    const auto* const masked = std::get_if<int64_t>(&config().mask_value.value);
    COHORT_CHECK_ARG(masked != nullptr, "[", name(),
                     "] expected texts, as mask_value is one, got numbers");
    bins = bins.masked_fill(x.detach().to(at::kCPU).eq(*masked), 0);
  }
  return encoded(bins).to(x.device());
}

Element HashingLayer::call_nest(const Element& inputs, const CallArgs& args) {
  if (!inputs[0].is_string()) return LayerImpl::call_nest(inputs, args);
  const int64_t first = masks(config()) ? 1 : 0;
  const internal::TextBins bin_of = bins_of(config(), config().num_bins - first);
  const auto* const masked = std::get_if<std::string>(&config().mask_value.value);
  COHORT_CHECK_ARG(first == 0 || masked != nullptr, "[", name(),
                   "] expected numbers, as mask_value is one, got texts");
  const std::vector<std::string_view> texts = inputs[0].string_views();
  Tensor bins = empty(shape_of_strings(inputs[0]), kInt64);
  auto* out = bins.data_ptr<int64_t>();
  for (const std::string_view text : texts) {
    *out++ = first == 1 && text == *masked ? 0 : first + bin_of(text);
  }
  return encoded(bins);
}

Hashing::Hashing(int64_t num_bins, HashingOptions options)
    : Layer(std::make_shared<HashingLayer>(HashingConfig{std::move(options), num_bins})) {}

HashedCrossingLayer::HashedCrossingLayer(HashedCrossingConfig config)
    : LayerImpl(with_known_hash_mode("hashed_crossing", std::move(config), kCrossModes)) {
  set_autocast(false);
}

ElementSpec HashedCrossingLayer::compute_output_spec(const ElementSpec& inputs) const {
  return TensorSpec{
      internal::encoded_shape(inputs[0].leaf().shape, config().output_mode, config().num_bins),
      *config().dtype.dtype};
}

Element HashedCrossingLayer::call_nest(const Element& inputs, const CallArgs&) {
  COHORT_CHECK_ARG(inputs.is_tuple() && inputs.size() >= 2, "[", name(),
                   "] expected two or more features, got ", inputs.spec().to_string());
  const Shape shape = inputs[0].spec().leaf().shape;
  const bool fits = shape.size() < 2 || (shape.size() == 2 && shape[1] == 1);
  COHORT_CHECK_ARG(fits, "[", name(), "] expected features of shape [b] or [b, 1], got ",
                   bracketed(shape));
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<uint64_t> hashes(static_cast<std::size_t>(count), kCrossKey);
  for (std::size_t f = 0; f < inputs.size(); ++f) {
    const Element& feature = inputs[f];
    const TensorSpec spec = feature.spec().leaf();
    COHORT_CHECK_ARG(spec.shape == shape, "[", name(), "] expected features of one shape, got ",
                     inputs.spec().to_string());
    if (feature.is_string()) {
      const std::vector<std::string_view> texts = feature.string_views();
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        hashes[i] = internal::joined_fingerprint(hashes[i], internal::farm_fingerprint64(texts[i]));
      }
      continue;
    }
    COHORT_CHECK_ARG(at::isIntegralType(spec.dtype, /*includeBool=*/false), "[", name(),
                     "] expected texts or whole numbers, got ", inputs.spec().to_string());
    const Tensor numbers = whole_numbers(name(), feature.tensor());
    const auto* const in = numbers.const_data_ptr<int64_t>();
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      hashes[i] = internal::joined_fingerprint(hashes[i], static_cast<uint64_t>(in[i]));
    }
  }
  Tensor bins = empty(shape, kInt64);
  auto* const out = bins.data_ptr<int64_t>();
  const auto num_bins = static_cast<uint64_t>(config().num_bins);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    out[i] = static_cast<int64_t>(hashes[i] % num_bins);
  }
  const Tensor crossed = internal::encode_categories(bins, config().output_mode, config().num_bins,
                                                     *config().dtype.dtype);
  for (std::size_t f = 0; f < inputs.size(); ++f) {
    if (!inputs[f].is_string()) return crossed.to(inputs[f].tensor().device());
  }
  return crossed;
}

Config HashedCrossingLayer::get_config() const {
  Config config = internal::config_without(LayerImpl::get_config(), "trainable");
  config.set("dtype", dtype_name(*this->config().dtype.dtype));
  return config;
}

HashedCrossing::HashedCrossing(int64_t num_bins, HashedCrossingOptions options)
    : Layer(std::make_shared<HashedCrossingLayer>(
          HashedCrossingConfig{std::move(options), num_bins})) {}

}  // namespace cohort::keras
