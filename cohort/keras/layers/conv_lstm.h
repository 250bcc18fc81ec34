// SPDX-License-Identifier: Apache-2.0
//
// LSTMs whose products are convolutions, with the names, options and defaults of Keras 3.
//
//   keras::ConvLSTM2D(16, {3, 3}, {.padding = "same", .return_sequences = true});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layers/recurrent.h"

namespace cohort::keras {

/// Sizes along the axes of space; one number stands for all of them.
struct SpaceSizes {
  Shape sizes = {};
  SpaceSizes() = default;
  SpaceSizes(int64_t all) : sizes{all} {}                           // NOLINT: implicit by design
  SpaceSizes(std::initializer_list<int64_t> each) : sizes(each) {}  // NOLINT
  bool operator==(const SpaceSizes&) const = default;
  Config serialize() const;
  static SpaceSizes deserialize(const Config& config);
};

struct ConvLSTMOptions {
  SpaceSizes strides = 1;
  std::string padding = "valid";              ///< Or "same": zeros around. Of the inputs.
  std::string data_format = "channels_last";  ///< Or "channels_first".
  SpaceSizes dilation_rate = 1;
  ActivationFunction activation = "tanh";
  ActivationFunction recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<uint64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool zero_output_for_mask = false;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ConvLSTMConfig : ConvLSTMOptions {
  int64_t filters = 0;
  SpaceSizes kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    internal::sequence_fields(c, f);
    f.required("filters", c.filters);
    f.required("kernel_size", c.kernel_size);
    f("strides", c.strides);
    f("padding", c.padding);
    f("data_format", c.data_format);
    f("dilation_rate", c.dilation_rate);
    internal::recurrent_fields(c, f);
  }
};

/// Base of the three. Errors: InvalidArgument for sizes that do not fit the number of axes, and for
/// strides together with dilation.
class ConvLSTMLayer : public internal::RecurrentImpl<ConvLSTMConfig> {
 public:
  ConvLSTMLayer(std::size_t rank, ConvLSTMConfig config);
};

/// Of ConvLSTM1D, see core.h; as the next two.
class ConvLSTM1DLayer : public ConvLSTMLayer {
 public:
  explicit ConvLSTM1DLayer(ConvLSTMConfig config) : ConvLSTMLayer(1, std::move(config)) {}
};
class ConvLSTM2DLayer : public ConvLSTMLayer {
 public:
  explicit ConvLSTM2DLayer(ConvLSTMConfig config) : ConvLSTMLayer(2, std::move(config)) {}
};
class ConvLSTM3DLayer : public ConvLSTMLayer {
 public:
  explicit ConvLSTM3DLayer(ConvLSTMConfig config) : ConvLSTMLayer(3, std::move(config)) {}
};

/// Shapes: [b, t, n, in] to [b, n', filters], with return_sequences [b, t, n', filters]; states
/// h and c like the output of a step. Weights kernel [k, in, 4 filters], recurrent_kernel [k,
/// filters, 4 filters], bias [4 filters]: gates i, f, c, o. TF: keras.layers.ConvLSTM1D.
class ConvLSTM1D : public RecurrentLayer {
 public:
  ConvLSTM1D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options = {});
};
/// The same over images [b, t, h, w, in].
class ConvLSTM2D : public RecurrentLayer {
 public:
  ConvLSTM2D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options = {});
};
/// The same over volumes [b, t, d, h, w, in].
class ConvLSTM3D : public RecurrentLayer {
 public:
  ConvLSTM3D(int64_t filters, SpaceSizes kernel_size, ConvLSTMOptions options = {});
};

}  // namespace cohort::keras
