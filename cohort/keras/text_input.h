// SPDX-License-Identifier: Apache-2.0
//
// Models that take texts.
//
//   const keras::KerasTensor text = keras::TextInput({1});
//   const keras::KerasTensor bags = vectorize(text);
//   keras::Model model(text, keras::Dense(1)(bags));
#pragma once

#include <cstdint>
#include <string>

#include "cohort/keras/keras_tensor.h"

namespace cohort::keras {

struct TextInputOptions {
  int64_t batch_size = kUnknownDim;
  std::string name = {};
};

/// The symbolic input of a functional model that takes strings. `shape` is without the batch.
/// TF: keras.Input(shape, dtype="string").
KerasTensor TextInput(Shape shape = {}, TextInputOptions options = {});

}  // namespace cohort::keras
