// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/spectrogram.h"

#include <ATen/ops/atan2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/stft.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/windows.h"
#include "cohort/keras/stft.h"

namespace cohort::keras {
namespace {

// Where powers of two end that a shape can have.
constexpr int64_t kMostSteps = int64_t{1} << 30;

constexpr double kTinyPower = 1e-7;  // Keras's epsilon

void check_stft_options(const STFTSpectrogramOptions& o) {
  constexpr const char* kWho = "stft_spectrogram";
  constexpr std::array kModes = {"log", "magnitude", "psd", "real", "imag", "angle", "stft"};
  COHORT_CHECK_ARG(std::ranges::count(kModes, o.mode) == 1, "[", kWho,
                   "] expected a mode of log, magnitude, psd, real, imag, angle or stft, got \"",
                   o.mode, "\"");
  COHORT_CHECK_ARG(o.frame_length > 0 && o.frame_length <= kMostSteps, "[", kWho,
                   "] expected 0 < frame_length <= ", kMostSteps, ", got ", o.frame_length);
  const int64_t step = o.frame_step.value_or(1);
  COHORT_CHECK_ARG(step >= 1 && step <= o.frame_length, "[", kWho,
                   "] expected frame_step from 1 to frame_length ", o.frame_length, ", got ", step);
  const int64_t fft_length = o.fft_length.value_or(o.frame_length);
  COHORT_CHECK_ARG(fft_length >= o.frame_length && fft_length <= kMostSteps, "[", kWho,
                   "] expected fft_length from frame_length ", o.frame_length, " to ", kMostSteps,
                   ", got ", fft_length);
  COHORT_CHECK_ARG(o.padding == "valid" || o.padding == "same", "[", kWho,
                   "] expected padding \"valid\" or \"same\", got \"", o.padding, "\"");
  STFT({.window = o.window, .scaling = o.scaling});  // throws for other names
}

// Triangles between neighbours of num_mel_bins + 2 points, equally far on the mel scale.
Tensor mel_weights(const MelSpectrogramOptions& o) {
  const auto mel = [](double hertz) { return 1127 * std::log1p(hertz / 700); };
  const int64_t frequencies = o.fft_length / 2 + 1;
  const double low = mel(o.min_freq);
  const double part = (mel(*o.max_freq) - low) / static_cast<double>(o.num_mel_bins + 1);
  std::vector<double> weights;
  for (int64_t bin = 0; bin < o.num_mel_bins; ++bin) {
    const double center = low + part * static_cast<double>(bin + 1);
    weights.push_back(0);  // what does not change is in no band
    for (int64_t i = 1; i < frequencies; ++i) {
      const double hertz = static_cast<double>(o.sampling_rate) / 2 * static_cast<double>(i) /
                           static_cast<double>(frequencies - 1);
      weights.push_back(std::max(0.0, 1 - std::abs(mel(hertz) - center) / part));
    }
  }
  return from_vector<double>(weights, {o.num_mel_bins, frequencies});
}

// As Keras keeps them: what is not given is settled.
MelSpectrogramOptions settled(MelSpectrogramOptions o) {
  constexpr const char* kWho = "mel_spectrogram";
  o.sequence_length = o.sequence_length.value_or(o.fft_length);
  const int64_t half_rate = o.sampling_rate / 2;  // int(rate / 2) there, too
  o.max_freq = o.max_freq.value_or(static_cast<double>(half_rate));
  COHORT_CHECK_ARG(*o.sequence_length > 0 && o.fft_length >= *o.sequence_length, "[", kWho,
                   "] expected 0 < sequence_length <= fft_length, got ", *o.sequence_length,
                   " and ", o.fft_length);
  COHORT_CHECK_ARG(o.sequence_stride > 0 && o.num_mel_bins > 0 && o.sampling_rate > 0, "[", kWho,
                   "] expected sequence_stride, num_mel_bins and sampling_rate > 0, got ",
                   o.sequence_stride, ", ", o.num_mel_bins, " and ", o.sampling_rate);
  COHORT_CHECK_ARG(o.min_freq >= 0 && o.min_freq < *o.max_freq, "[", kWho,
                   "] expected 0 <= min_freq < max_freq, got ", o.min_freq, " and ", *o.max_freq);
  COHORT_CHECK_ARG(!o.window || *o.window == "hann" || *o.window == "hamming", "[", kWho,
                   "] expected window \"hann\", \"hamming\" or none, got \"", o.window.value_or(""),
                   "\"");
  return o;
}

}  // namespace

STFTSpectrogramLayer::STFTSpectrogramLayer(STFTSpectrogramOptions options)
    : LayerImpl(std::move(options)),
      channels_first_(internal::is_channels_first("stft_spectrogram", config().data_format)) {
  check_stft_options(config());
  set_input_spec({.rank = 3});
}

int64_t STFTSpectrogramLayer::step() const {
  return config().frame_step.value_or(std::max<int64_t>(1, config().frame_length / 2));
}

int64_t STFTSpectrogramLayer::fft_length() const {
  int64_t power = 1;
  while (power < config().frame_length) power *= 2;
  return config().fft_length.value_or(power);
}

void STFTSpectrogramLayer::build(const Shape&) {
  const STFTSpectrogramOptions& o = config();
  const auto kernel = [&](const char* side) {
    return add_weight(
        {.name = std::string(side) + "_kernel",
         .shape = {o.frame_length, 1, fft_length() / 2 + 1},
         .dtype = o.dtype.variable_dtype(),
         .initializer = STFT(
             {.side = side, .window = o.window, .scaling = o.scaling, .periodic = o.periodic})});
  };
  if (o.mode != "imag") real_ = kernel("real");
  if (o.mode != "real") imag_ = kernel("imag");
}

int64_t STFTSpectrogramLayer::frames(int64_t steps) const {
  if (steps == kUnknownDim) return kUnknownDim;
  if (config().padding == "same") return (steps + step() - 1) / step();
  if (steps < config().frame_length) return 0;
  return (steps - config().frame_length) / step() + 1;
}

Shape STFTSpectrogramLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(in.size() == 3, "[", name(), "] expected inputs with 3 axes, got shape ",
                   bracketed(in));
  const int64_t channels = in[channels_first_ ? 1 : 2], count = frames(in[channels_first_ ? 2 : 1]);
  const int64_t bins = (fft_length() / 2 + 1) * (config().mode == "stft" ? 2 : 1);
  const int64_t together = channels == kUnknownDim ? kUnknownDim : channels * bins;
  if (config().expand_dims) {
    return channels_first_ ? Shape{in[0], channels, count, bins}
                           : Shape{in[0], count, bins, channels};
  }
  return channels_first_ ? Shape{in[0], together, count} : Shape{in[0], count, together};
}

// Of x [b, c, t], each channel by itself: [b, c, frequencies, frames].
Tensor STFTSpectrogramLayer::apply(const Tensor& x, const Variable& kernel) const {
  const int64_t batch = x.size(0), channels = x.size(1), length = config().frame_length;
  Tensor rows = x.reshape({batch * channels, 1, x.size(2)});
  if (config().padding == "same") {
    const int64_t missing =
        std::max<int64_t>(0, (frames(x.size(2)) - 1) * step() + length - x.size(2));
    rows = at::constant_pad_nd(rows, {missing / 2, missing - missing / 2});
  }
  const Tensor weight = kernel.value().to(x.scalar_type()).permute({2, 1, 0});
  const Tensor y = at::conv1d(rows, weight, {}, step());
  return y.view({batch, channels, y.size(1), y.size(2)});
}

Tensor STFTSpectrogramLayer::arranged(const Tensor& x) const {
  if (config().expand_dims) {
    return channels_first_ ? x.permute({0, 1, 3, 2}) : x.permute({0, 3, 2, 1});
  }
  const Tensor together = x.flatten(1, 2);
  return channels_first_ ? together : together.permute({0, 2, 1});
}

Tensor STFTSpectrogramLayer::call(const Tensor& input, const CallArgs&) {
  const std::string& mode = config().mode;
  const Tensor x = channels_first_ ? input : input.permute({0, 2, 1});
  COHORT_CHECK_ARG(config().padding == "same" || x.size(2) >= config().frame_length, "[", name(),
                   "] expected at least ", config().frame_length, " steps, got ", x.size(2));
  Tensor real, imag;
  if (mode != "imag") real = apply(x, real_);
  if (mode != "real") imag = apply(x, imag_);
  if (mode == "real") return arranged(real);
  if (mode == "imag") return arranged(imag);
  if (mode == "angle") return arranged(at::atan2(imag, real));
  if (mode == "stft") return arranged(at::cat({real, imag}, 2));
  const Tensor power = real.square() + imag.square();
  if (mode == "psd") {  // all but the first and the last stand for two frequencies
    const Tensor between = power.slice(2, 1, power.size(2) - 1);
    return arranged(power + at::constant_pad_nd(between, {0, 0, 1, 1}));
  }
  const Tensor magnitude = arranged(power.clamp_min(kTinyPower).sqrt());
  return mode == "magnitude" ? magnitude : magnitude.clamp_min(kTinyPower).log();
}

MelSpectrogramLayer::MelSpectrogramLayer(MelSpectrogramOptions options)
    : LayerImpl(settled(std::move(options))) {
  const MelSpectrogramOptions& o = config();
  window_ = internal::window_values(o.window.value_or("boxcar"), *o.sequence_length, true);
  to_mel_ = mel_weights(o);
}

Shape MelSpectrogramLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(in.size() == 1 || in.size() == 2, "[", name(),
                   "] expected inputs with 1 or 2 axes, got shape ", bracketed(in));
  const int64_t samples = in.back(), reach = config().fft_length / 2 * 2;
  const int64_t frames = samples == kUnknownDim ? kUnknownDim
                                                : 1 + (samples + reach - config().fft_length) /
                                                          config().sequence_stride;
  Shape out = in;
  out.back() = config().num_mel_bins;
  out.push_back(frames);
  return out;
}

Tensor MelSpectrogramLayer::call(const Tensor& input, const CallArgs&) {
  const MelSpectrogramOptions& o = config();
  const DType wanted = o.dtype.compute_dtype();
  const DType dtype = wanted == kFloat64 ? kFloat64 : kFloat32;  // transforms know no halves
  const Tensor x = input.to(dtype);
  COHORT_CHECK_ARG(x.dim() == 1 || x.dim() == 2, "[", name(),
                   "] expected inputs with 1 or 2 axes, got shape ", bracketed(x.sizes()));
  COHORT_CHECK_ARG(x.size(-1) > o.fft_length / 2, "[", name(), "] expected more than ",
                   o.fft_length / 2, " samples (half of fft_length), got ", x.size(-1));
  if (x.numel() == 0) return zeros(compute_output_shape(shape_of(x)), wanted).to(x.device());
  const Tensor waves = at::stft(x, o.fft_length, o.sequence_stride, *o.sequence_length,
                                window_.to(dtype), /*center=*/true, "reflect",
                                /*normalized=*/false, /*onesided=*/true, /*return_complex=*/true);
  const Tensor power = waves.abs().pow(o.mag_exp);
  Tensor y = to_mel_.to(dtype).matmul(power);
  if (o.power_to_db) {
    const double reference = std::log10(std::max(std::abs(o.ref_power), o.min_power));
    y = y.clamp_min(o.min_power).log10() * 10 - 10 * reference;
    if (y.numel() > 0) y = y.maximum(y.max() - o.top_db);
  }
  return y.to(wanted);
}

}  // namespace cohort::keras
