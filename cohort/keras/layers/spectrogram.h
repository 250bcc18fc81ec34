// SPDX-License-Identifier: Apache-2.0
//
// Spectrograms of sounds, with the names, options and defaults of Keras 3.
//
//   const Tensor sound = zeros({2, 16000});
//   const Tensor mel = keras::MelSpectrogram({.num_mel_bins = 64})(sound);   // [2, 64, 32]
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct STFTSpectrogramOptions {
  std::string mode = "log";  ///< Or "magnitude", "psd", "real", "imag", "angle", "stft".
  int64_t frame_length = 256;
  std::optional<int64_t> frame_step = {};          ///< Unset: half a frame.
  std::optional<int64_t> fft_length = {};          ///< Unset: the next power of 2.
  std::optional<std::string> window = "hann";      ///< Or hamming, blackman, bartlett, boxcar.
  bool periodic = false;                           ///< Of the window.
  std::optional<std::string> scaling = "density";  ///< Or "spectrum".
  std::string padding = "valid";                   ///< Or "same".
  std::string data_format = "channels_last";
  bool expand_dims = false;  ///< Frequencies get an axis of their own.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("mode", c.mode);
    f("frame_length", c.frame_length);
    f("frame_step", c.frame_step);
    f("fft_length", c.fft_length);
    f("window", c.window);
    f("periodic", c.periodic);
    f("scaling", c.scaling);
    f("padding", c.padding);
    f("data_format", c.data_format);
    f("expand_dims", c.expand_dims);
  }
};

/// Of STFTSpectrogram, see core.h.
class STFTSpectrogramLayer : public LayerImpl<STFTSpectrogramOptions> {
 public:
  explicit STFTSpectrogramLayer(STFTSpectrogramOptions options);
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  int64_t step() const;
  int64_t fft_length() const;
  int64_t frames(int64_t steps) const;
  Tensor apply(const Tensor& x, const Variable& kernel) const;
  Tensor arranged(const Tensor& x) const;

  bool channels_first_ = false;
  Variable real_, imag_;
};

/// The short-time Fourier transform of each channel, as convolutions with two kernels, which are
/// weights: they can be trained.
/// Shapes: [b, t, c] to [b, frames, c * frequencies], or [b, frames, frequencies, c] with
/// expand_dims; channels first [b, c, t] to [b, c * frequencies, frames], or
/// [b, c, frames, frequencies]. frequencies: fft_length / 2 + 1, of mode "stft" twice as many.
/// Errors: InvalidArgument for numbers and names that do not fit. TF: keras.layers.STFTSpectrogram.
using STFTSpectrogram = Handle<STFTSpectrogramLayer>;

struct MelSpectrogramOptions {
  int64_t fft_length = 2048;
  int64_t sequence_stride = 512;
  std::optional<int64_t> sequence_length = {};  ///< Of a window. Unset: fft_length.
  std::optional<std::string> window = "hann";   ///< Or "hamming".
  int64_t sampling_rate = 16000;                ///< In a second.
  int64_t num_mel_bins = 128;
  double min_freq = 20;                 ///< In Hertz, as the next.
  std::optional<double> max_freq = {};  ///< Unset: half the sampling rate.
  bool power_to_db = true;
  double top_db = 80;  ///< Values are at least the maximum less this.
  double mag_exp = 2;
  double min_power = 1e-10;
  double ref_power = 1;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("fft_length", c.fft_length);
    f("sequence_stride", c.sequence_stride);
    f("sequence_length", c.sequence_length);
    f("window", c.window);
    f("sampling_rate", c.sampling_rate);
    f("num_mel_bins", c.num_mel_bins);
    f("min_freq", c.min_freq);
    f("max_freq", c.max_freq);
    f("power_to_db", c.power_to_db);
    f("top_db", c.top_db);
    f("mag_exp", c.mag_exp);
    f("min_power", c.min_power);
    f("ref_power", c.ref_power);
  }
};

/// Of MelSpectrogram, see core.h.
class MelSpectrogramLayer : public LayerImpl<MelSpectrogramOptions> {
 public:
  explicit MelSpectrogramLayer(MelSpectrogramOptions options);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  Tensor window_;  // float64
  Tensor to_mel_;  // float64 [mel bins, frequencies]
};

/// How loud each band of frequencies, on the mel scale, is over time, in decibel unless power_to_db
/// is off. Frames reach half of fft_length over both ends, where the sound is mirrored.
/// Shapes: [t] to [num_mel_bins, frames], [b, t] to [b, num_mel_bins, frames].
/// Errors: InvalidArgument for numbers and names that do not fit, and for a sound of at most half
///         of fft_length. TF: keras.layers.MelSpectrogram.
using MelSpectrogram = Handle<MelSpectrogramLayer>;

}  // namespace cohort::keras
