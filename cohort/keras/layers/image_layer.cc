// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/image_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {

Config FactorRange::serialize() const {
  if (is_one) return high;
  return Config::List{low, high};
}

FactorRange FactorRange::deserialize(const Config& config) {
  if (config.is_number()) return config.number();
  const Config::List& both = config.list();
  COHORT_CHECK_ARG(both.size() == 2, "[from_config] expected one number or two, got ", both.size());
  return {both[0].number(), both[1].number()};
}

FactorRange FactorRange::within(const std::string& who, double least, double most) const {
  FactorRange out = *this;
  if (is_one) {
    out = {std::max(-std::abs(high), least), std::abs(high)};
  } else if (low > high) {
    std::swap(out.low, out.high);
  }
  // Of two numbers Keras asks only that something is left between them.
  const bool fits = is_one ? high >= least && high <= most : low <= most && high >= least;
  COHORT_CHECK_ARG(fits, "[", who, "] expected a number in [", least, ", ", most, "], or two, got ",
                   low, " and ", high);
  return out;
}

ImageLayer::ImageLayer(std::string name) : LayerBase(std::move(name)) {}
ImageLayer::~ImageLayer() = default;

void ImageLayer::set_up(const std::string& data_format, std::optional<uint64_t> seed) {
  channels_first_ = internal::is_channels_first(class_name().c_str(), data_format);
  draws_ = std::make_unique<internal::Draws>(seed);
  set_autocast(false);
}

TrackedParts ImageLayer::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  if (draws_ != nullptr) draws_->add_to(parts);
  return parts;
}

Tensor ImageLayer::call(const Tensor& images, const CallArgs& args) {
  COHORT_CHECK_ARG(images.dim() == 3 || images.dim() == 4, "[", name(),
                   "] expected an image of 3 axes or a batch of them, got shape ",
                   bracketed(images.sizes()));
  const Tensor x = images.to(dtype_policy().compute_dtype());
  if (!args.training && !transforms_always()) return x;
  // On the host, wherever the images are: what is drawn and decided is there.
  Tensor batch = (x.dim() == 3 ? x.unsqueeze(0) : x).to(at::kCPU);
  if (channels_first_) batch = batch.movedim(1, -1);
  Tensor y = transform(batch);
  if (channels_first_) y = y.movedim(-1, 1);
  y = y.to(x.device(), x.scalar_type());
  return x.dim() == 3 ? y.squeeze(0) : y;
}

Tensor ImageLayer::one_each(const Tensor& images, const FactorRange& range) const {
  return draws().uniform(range.low, range.high, {images.size(0), 1, 1, 1}).to(images.options());
}

Tensor ImageLayer::chosen(const Tensor& images, const FactorRange& probability) const {
  const Tensor likely = one_each(images, probability);
  return one_each(images, {0, 1}) < likely;
}

}  // namespace cohort::keras
