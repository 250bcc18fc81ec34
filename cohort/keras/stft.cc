// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/stft.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

struct STFTInitializer final : InitializerBase {
  using Options = STFTOptions;
  explicit STFTInitializer(STFTOptions given) : options(std::move(given)) {
    COHORT_CHECK_ARG(options.side == "real" || options.side == "imag",
                     "[stft] expected side \"real\" or \"imag\", got \"", options.side, "\"");
    if (options.window) internal::check_window("stft", *options.window);
    const std::string scaling = options.scaling.value_or("density");
    COHORT_CHECK_ARG(scaling == "density" || scaling == "spectrum",
                     "[stft] expected scaling \"density\", \"spectrum\" or none, got \"", scaling,
                     "\"");
  }
  std::string class_name() const override { return "STFT"; }
  Config get_config() const override { return config_of(options); }

  Tensor make(const Shape& shape, DType dtype) const override {
    COHORT_CHECK_ARG(shape.size() == 3 && shape[1] == 1 && shape[2] > 1,
                     "[stft] expected shape [frame length, 1, fft_length / 2 + 1], got ",
                     bracketed(shape));
    const int64_t length = shape[0], bins = shape[2];
    const std::vector<double> window = scaled_window(length);
    std::vector<double> kernel;
    kernel.reserve(static_cast<std::size_t>(length * bins));
    const int64_t whole = (bins - 1) * 2;
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t k = 0; k < bins; ++k) {
        // The turn's part alone: of many turns little would be left of the digits.
        const double turn = static_cast<double>(t * k % whole) / static_cast<double>(whole);
        const double angle = -2 * std::numbers::pi * turn;
        const double wave = options.side == "real" ? std::cos(angle) : std::sin(angle);
        kernel.push_back(wave * window[static_cast<std::size_t>(t)]);
      }
    }
    return from_vector<double>(kernel, shape).to(dtype);
  }

  // As Keras: without a window nothing is scaled.
  std::vector<double> scaled_window(int64_t length) const {
    if (!options.window) return std::vector<double>(static_cast<std::size_t>(length), 1.0);
    const Tensor window = internal::window_values(*options.window, length, options.periodic);
    Tensor scale = scalar(1.0, kFloat64);
    if (options.scaling == "density") scale = window.square().sum().sqrt();
    if (options.scaling == "spectrum") scale = window.abs().sum();
    return to_vector<double>(window / scale);
  }

  const STFTOptions options;
};

}  // namespace

Initializer STFT(STFTOptions options) {
  return std::make_shared<const STFTInitializer>(std::move(options));
}

namespace internal {

void add_stft(ClassTable& table) {
  table.add_builtin<STFTInitializer>();
  table.add_builtin<STFTInitializer>("STFTInitializer");
}

void check_window(const char* who, const std::string& name) {
  const bool known = name == "boxcar" || name == "hann" || name == "hamming" ||
                     name == "blackman" || name == "bartlett";
  COHORT_CHECK_ARG(known, "[", who,
                   "] expected a window named boxcar, hann, hamming, blackman or bartlett, got \"",
                   name, "\"");
}

Tensor window_values(const std::string& name, int64_t length, bool periodic) {
  check_window("window", name);
  const double last = static_cast<double>(length - 1 + (periodic ? 1 : 0));
  std::vector<double> values;
  for (int64_t i = 0; i < length; ++i) {
    const double at = length == 1 ? 0.5 : static_cast<double>(i) / last;
    const double wave = std::cos(2 * std::numbers::pi * at);
    double value = 1;
    if (name == "hann") value = 0.5 - 0.5 * wave;
    if (name == "hamming") value = 0.54 - 0.46 * wave;
    if (name == "blackman") value = 0.42 - 0.5 * wave + 0.08 * std::cos(4 * std::numbers::pi * at);
    if (name == "bartlett") value = 1 - std::abs(2 * at - 1);
    values.push_back(value);
  }
  return from_vector<double>(values, {length});
}

}  // namespace internal
}  // namespace cohort::keras
