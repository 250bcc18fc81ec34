// SPDX-License-Identifier: Apache-2.0
//
// Kernels of short-time Fourier transforms, and the windows before them.
//
//   keras::Initializer kernel = keras::STFT({.side = "imag", .window = "hamming"});
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/initializers.h"

namespace cohort::keras {

struct STFTOptions {
  std::string side = "real";                       ///< Or "imag".
  std::optional<std::string> window = "hann";      ///< As window_values(); unset: none.
  std::optional<std::string> scaling = "density";  ///< Or "spectrum", or unset.
  bool periodic = false;                           ///< Of the window.
  static void fields(auto& c, auto&& f) {
    f("side", c.side);
    f("window", c.window);
    f("periodic", c.periodic);
    f("scaling", c.scaling);
  }
};

/// The real or imaginary part of the waves of a Fourier transform below a window, which is scaled
/// to a sum of squares ("density") or a sum ("spectrum") of 1. Shapes: [frame length, 1, fft_length
/// / 2 + 1]. Errors: InvalidArgument for other names or shapes. TF: keras.initializers.STFT.
Initializer STFT(STFTOptions options = {});

namespace internal {
void add_stft(ClassTable& table);

/// Errors: InvalidArgument for another name of a window than boxcar, hann, hamming, blackman and
///         bartlett.
void check_window(const char* who, const std::string& name);
/// float64; periodic: as if one value longer, without that.
Tensor window_values(const std::string& name, int64_t length, bool periodic);
}  // namespace internal
}  // namespace cohort::keras
