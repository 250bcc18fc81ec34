// SPDX-License-Identifier: Apache-2.0
//
// Names of a model's layers: one each, as in Keras.
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/keras_tensor.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras {
namespace {

template <class F>
std::string refusal_of(F f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "taken";
}

TEST(LayerNames, OfASequentialAreUnique) {
  const Dense first(2, {.name = "a"}), second(2, {.name = "b"}), third(2, {.name = "a"});
  EXPECT_EQ(
      refusal_of([&] {
        Sequential({first, second, third}, "net");
      }),
      "[sequential.add] expected layers of unique names in model \"net\", got \"a\" at position 0, "
      "Dense, and at position 2, Dense: give one of them another name");
  Sequential grown({InputLayer({2}, {.name = "a"})}, "net");
  EXPECT_EQ(
      refusal_of([&] { grown.add(first); }),
      "[sequential.add] expected layers of unique names in model \"net\", got \"a\" at position 0, "
      "InputLayer, and at position 1, Dense: give one of them another name");
  EXPECT_EQ(grown.layers().size(), 1U);
  grown.add(second);
}

// The layer itself may stand twice, and a model inside has names of its own.
TEST(LayerNames, OfASequentialMayBeTheSameLayersOrAnotherModels) {
  const Dense layer(3, {.name = "a"});
  EXPECT_NO_THROW(Sequential({InputLayer({3}), layer, layer}));
  const auto inner = std::make_shared<Sequential>(
      std::vector<Layer>{InputLayer({3}), Dense(2, {.name = "a"})}, "inner");
  EXPECT_NO_THROW(Sequential({inner, Dense(2, {.name = "a"})}));
}

TEST(LayerNames, OfDrawnModelsAreUniqueToo) {
  const KerasTensor x = Input({3}, {.name = "a"});
  EXPECT_EQ(refusal_of([&] { Model(x, Dense(2, {.name = "a"})(Dense(2, {.name = "b"})(x))); }),
            "[model] expected layers of unique names, got \"a\" at position 0, InputLayer, and at "
            "position 2, Dense: give one of them another name");
}

}  // namespace
}  // namespace cohort::keras
