// SPDX-License-Identifier: Apache-2.0
//
// Models of layers of images: what passes through where nothing is trained, and what files say.
#include <gtest/gtest.h>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

void expect_whole_images(Model& model, const Layer& conv) {
  const Tensor x = random_normal({2, 9, 9, 3});
  const Tensor whole = conv(x).amax({1, 2});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(model(x).allclose(whole, 1e-5, 1e-6)) << i;
  EXPECT_EQ(shape_of(model(x, {.training = true})), (Shape{2, 4}));
  EXPECT_TRUE(model(x).allclose(whole, 1e-5, 1e-6));
  model.compile({.optimizer = SGD(), .loss = "mse"});
  model.fit(x, zeros({2, 4}), {.verbose = Verbose::kSilent});
  EXPECT_EQ(shape_of(model.predict(x, {.verbose = Verbose::kSilent})), (Shape{2, 4}));
}

TEST(RandomCropModels, OfLayersInARowPassOnWholeImages) {
  set_seed(1);
  const Layer conv = Conv2D(4, 3);
  Sequential model(
      {InputLayer({9, 9, 3}), RandomCrop(6, 5), RandomFlip(), conv, GlobalMaxPooling2D()});
  expect_whole_images(model, conv);
}

TEST(RandomCropModels, ThatWereDrawnPassOnWholeImages) {
  set_seed(1);
  const Layer conv = Conv2D(4, 3);
  const KerasTensor x = Input({9, 9, 3});
  const KerasTensor cut = RandomFlip()(RandomCrop(6, 5)(x));
  EXPECT_EQ(cut.shape(), (Shape{kUnknownDim, 6, 5, 3}));
  Model model(x, GlobalMaxPooling2D()(conv(cut)));
  expect_whole_images(model, conv);
}

TEST(RandomCropModels, InsideOthersPassOnWholeImages) {
  set_seed(1);
  const auto augmentation = [] {
    return std::make_shared<Sequential>(
        std::vector<Layer>{InputLayer({9, 9, 3}), RandomCrop(6, 5), RandomFlip()});
  };
  const Layer conv = Conv2D(4, 3);
  Sequential model({InputLayer({9, 9, 3}), Layer(augmentation()), conv, GlobalMaxPooling2D()});
  expect_whole_images(model, conv);
  const Layer drawn = Conv2D(4, 3);
  const KerasTensor x = Input({9, 9, 3});
  const KerasTensor cut = Layer(augmentation())(x);
  Model other(x, GlobalMaxPooling2D()(drawn(cut)));
  expect_whole_images(other, drawn);
}

// Keras writes two numbers, reads them, and refuses the negative one.
TEST(RandomShear, IsWrittenAsKerasCanReadIt) {
  const Config config = RandomShear({.x_factor = 0.4, .y_factor = {0.1, 0.3}}).get_config();
  EXPECT_EQ(config.number("x_factor"), 0.4);
  EXPECT_EQ(config.at("y_factor"), Config(Config::List{0.1, 0.3}));
  Config of_keras = config;
  of_keras.set("x_factor", Config::List{-0.4, 0.4});
  EXPECT_EQ(Layer::deserialize(Config::object({{"module", "keras.layers"},
                                               {"class_name", "RandomShear"},
                                               {"config", of_keras}}))
                .get_config(),
            config);
}

}  // namespace
}  // namespace cohort::keras
