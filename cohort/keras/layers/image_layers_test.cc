// SPDX-License-Identifier: Apache-2.0
//
// Layers of images: what golden/layers/images.py cannot ask of Keras, for it is drawn. Conformance:
// same seed, same bits; replicas draw different numbers; nothing changes but while training.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/layers/internal/image_sampling.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

using cohort::testing::strategy_of;
using Seed = std::optional<uint64_t>;
using Factory = std::function<Layer(Seed seed, const std::string& format)>;

struct ImageCase {
  const char* name;
  Factory make;
  friend std::ostream& operator<<(std::ostream& out, const ImageCase& c) { return out << c.name; }
};

// Every layer that draws, so that each draw shows.
std::vector<ImageCase> drawing_layers() {
  const auto color = [](auto make, FactorRange factor) {
    return [=](Seed seed, const std::string& format) -> Layer {
      return make(factor, ColorOptions{.seed = seed, .data_format = format});
    };
  };
  const auto geometry = [](auto make) {
    return [=](Seed seed, const std::string& format) -> Layer {
      return make(GeometryOptions{.seed = seed, .data_format = format});
    };
  };
#define COLOR(layer, factor)                                                                    \
  {                                                                                             \
#layer, color([](FactorRange f, ColorOptions o) { return layer(f, std::move(o)); }, factor) \
  }
#define GEOMETRY(layer, ...)                                                             \
  {                                                                                      \
#layer, geometry([](GeometryOptions o) { return layer(__VA_ARGS__, std::move(o)); }) \
  }
#define OTHER(layer, ...)                                                                     \
  {                                                                                           \
#layer, [](Seed seed, const std::string& format)                                          \
                 -> Layer { return layer({__VA_ARGS__.seed = seed, .data_format = format}); } \
  }
  return {
      COLOR(RandomBrightness, 0.4),
      COLOR(RandomContrast, 0.4),
      COLOR(RandomHue, 0.4),
      COLOR(RandomSaturation, FactorRange(0.2, 0.8)),
      COLOR(RandomColorDegeneration, 0.6),
      COLOR(RandomSharpness, 0.9),
      COLOR(RandomPosterization, FactorRange(1, 8)),
      COLOR(RandomInvert, FactorRange(0.5, 0.5)),
      GEOMETRY(RandomRotation, 0.2),
      GEOMETRY(RandomTranslation, 0.3, 0.3),
      {"RandomZoom",
       [](Seed seed, const std::string& format) -> Layer {
         return RandomZoom({-0.3, 0.2}, {.width_factor = 0.3, .seed = seed, .data_format = format});
       }},
      OTHER(RandomShear, .x_factor = 0.4, .y_factor = 0.3, ),
      OTHER(RandomFlip, ),
      OTHER(RandomPerspective, ),
      OTHER(RandomElasticTransform, ),
      OTHER(RandomGrayscale, ),
      OTHER(RandomErasing, ),
      OTHER(RandomGaussianBlur, .factor = 0.5, ),
      OTHER(RandomColorJitter, .brightness_factor = 0.2, .hue_factor = 0.3, ),
      OTHER(Solarization, .addition_factor = 0.5, .threshold_factor = 0.5, )};
#undef COLOR
#undef GEOMETRY
#undef OTHER
}

Tensor photos(int64_t count, int64_t size = 9) {
  const Tensor waves = (arange(count * size * size * 3).to(kFloat32) * 0.37).sin();
  return (waves * 120 + 128).reshape({count, size, size, 3});
}

class DrawingImageLayers : public ::testing::TestWithParam<ImageCase> {
 protected:
  Layer make(Seed seed = 7, const std::string& format = "channels_last") const {
    return GetParam().make(seed, format);
  }
};

TEST_P(DrawingImageLayers, LeaveImagesAloneUnlessTraining) {
  const Tensor x = photos(3);
  EXPECT_TRUE(make()(x).equal(x));
  const Tensor pixels = x.to(kUint8);
  EXPECT_TRUE(make()(pixels).equal(pixels.to(kFloat32)));
}

TEST_P(DrawingImageLayers, DrawForEachCallAndSeed) {
  const Tensor x = photos(32, 7);
  const Layer a = make(), b = make(), other = make(8);
  const Tensor first = a(x, {.training = true});
  EXPECT_EQ(shape_of(first), shape_of(x));
  EXPECT_FALSE(first.equal(x));
  EXPECT_FALSE(first.isnan().any().item<bool>());
  EXPECT_TRUE(first.equal(b(x, {.training = true})));
  EXPECT_FALSE(first.equal(a(x, {.training = true})));
  EXPECT_FALSE(first.equal(other(x, {.training = true})));
}

TEST_P(DrawingImageLayers, TakeOneImageAndChannelsFirst) {
  const Tensor x = photos(1);
  const Tensor y = make()(x, {.training = true});
  EXPECT_TRUE(make()(x[0], {.training = true}).equal(y[0]));
  const Tensor turned = make(7, "channels_first")(x.movedim(-1, 1), {.training = true});
  EXPECT_TRUE(turned.movedim(1, -1).equal(y));
}

TEST_P(DrawingImageLayers, TakeEmptyBatches) {
  EXPECT_EQ(shape_of(make()(photos(0), {.training = true})), (Shape{0, 9, 9, 3}));
}

TEST_P(DrawingImageLayers, DrawOtherNumbersOnEachReplica) {
  const Strategy strategy = strategy_of(2);
  const auto scope = strategy.scope();
  const Layer layer = make();
  const Tensor x = photos(8);
  std::vector<Tensor> seen(2);
  strategy.run(
      [&] { seen[static_cast<std::size_t>(current_replica())] = layer(x, {.training = true}); });
  EXPECT_FALSE(seen[0].equal(seen[1]));
}

TEST_P(DrawingImageLayers, AreMadeOfTheirConfigs) {
  const Layer layer = make(), again = Layer::deserialize(layer.serialize());
  EXPECT_EQ(again.serialize(), layer.serialize());
  const Tensor x = photos(4);
  EXPECT_TRUE(again(x, {.training = true}).equal(layer(x, {.training = true})));
}

INSTANTIATE_TEST_SUITE_P(Keras, DrawingImageLayers, ::testing::ValuesIn(drawing_layers()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(RandomFlip, TurnsHalfOfTheImagesBothWaysAtOnce) {
  const Tensor x = photos(400, 3);
  const Tensor y = RandomFlip({.seed = 3})(x, {.training = true});
  int turned = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const bool same = y[i].equal(x[i]);
    EXPECT_TRUE(same || y[i].equal(x[i].flip({0, 1})));
    turned += same ? 0 : 1;
  }
  EXPECT_NEAR(turned, 200, 50);  // five deviations
  const Tensor sideways = RandomFlip({.mode = "horizontal", .seed = 3})(x, {.training = true});
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(sideways[i].equal(x[i]) || sideways[i].equal(x[i].flip({1})));
  }
}

TEST(RandomBrightness, DrawsEvenlyFromItsRange) {
  const Tensor x = full({2000, 1, 1, 1}, 100);
  const Tensor y = RandomBrightness({-0.1, 0.3}, {.seed = 5})(x, {.training = true});
  const Tensor part = (y - x) / 255;
  EXPECT_GE(part.min().item<double>(), -0.1 - 1e-6);
  EXPECT_LT(part.max().item<double>(), 0.3 + 1e-6);
  EXPECT_NEAR(part.mean().item<double>(), 0.1, 0.013);  // five deviations
  EXPECT_NEAR(part.std().item<double>(), 0.4 / std::sqrt(12), 0.01);
}

TEST(RandomShear, SlantsToEitherSide) {
  const Tensor x = photos(40);
  const Tensor y = RandomShear({.x_factor = {0.3, 0.3}, .y_factor = {0.2, 0.2}, .seed = 2})(
      x, {.training = true});
  const auto slanted = [&](int64_t i, double side) {
    const Tensor transform =
        from_vector<double>({1, 0.3 * side, 0, 0.2 * side, 1, 0, 0, 0}, {1, 8});
    return internal::projected(x.narrow(0, i, 1), transform, {})[0];
  };
  std::set<int> sides;
  for (int64_t i = 0; i < 40; ++i) {
    for (const int side : {-1, 1}) {
      if (y[i].allclose(slanted(i, side), 1e-4, 1e-3)) sides.insert(side);
    }
  }
  EXPECT_EQ(sides, (std::set<int>{-1, 1}));
}

TEST(RandomCrop, CutsOnePartOutOfAllImages) {
  const Tensor x = photos(2, 4);
  const RandomCrop layer(3, 2, {.seed = 1});
  std::set<int64_t> places;
  for (int call = 0; call < 200; ++call) {
    const Tensor y = layer(x, {.training = true});
    ASSERT_EQ(shape_of(y), (Shape{2, 3, 2, 3}));
    for (int64_t place = 0; place < 6; ++place) {
      if (y.equal(x.narrow(1, place / 3, 3).narrow(2, place % 3, 2))) places.insert(place);
    }
  }
  EXPECT_EQ(places.size(), 6U);
  EXPECT_EQ(shape_of(layer(x.narrow(0, 0, 0), {.training = true})), (Shape{0, 3, 2, 3}));
  EXPECT_TRUE(layer(x).equal(x));
}

TEST(RandomPosterization, KeepsBitsBelowTheSecondNumber) {
  const Tensor x = full({500, 1, 1, 1}, 255);
  const Tensor y = RandomPosterization({2, 5}, {.seed = 1})(x, {.training = true});
  std::set<double> seen;
  for (const double level : to_vector<double>(y.flatten().to(kFloat64))) seen.insert(level);
  EXPECT_EQ(seen, (std::set<double>{192, 224, 240}));
}

TEST(RandomErasing, ErasesOneRectangleOfEachImage) {
  const Tensor x = full({50, 10, 10, 2}, 9);
  const Tensor y = RandomErasing(
      {.factor = {1, 1}, .scale = {0.1, 0.3}, .fill_value = 4, .seed = 6})(x, {.training = true});
  for (int64_t i = 0; i < 50; ++i) {
    const Tensor erased = y[i].select(-1, 0).eq(4);
    const int64_t rows = erased.any(1).sum().item<int64_t>();
    const int64_t columns = erased.any(0).sum().item<int64_t>();
    EXPECT_EQ(erased.sum().item<int64_t>(), rows * columns);
    EXPECT_GE(rows, 3);
    EXPECT_LE(rows, 6);
    EXPECT_TRUE(y[i].select(-1, 1).eq(4).equal(erased));
  }
}

// Each image is one number, and its label says which.
struct Marked {
  Tensor images, labels;
};
Marked marked(int64_t count) {
  const Tensor index = arange(count);
  const Tensor labels = index.unsqueeze(1).eq(index).to(kFloat32);
  return {index.to(kFloat32).view({count, 1, 1, 1}).expand({count, 8, 8, 1}).contiguous(), labels};
}

void expect_mixed_alike(const Element& mixed, int64_t count, bool in_parts) {
  const Tensor images = mixed["images"].tensor(), labels = mixed["labels"].tensor();
  EXPECT_TRUE(labels.sum(1).allclose(ones({count})));
  int64_t changed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor wanted = labels[i].dot(arange(count).to(kFloat32));
    // A rectangle has whole rows and columns, its area any number of pixels.
    const double slack = in_parts ? 0.35 * static_cast<double>(count) : 1e-4;
    EXPECT_NEAR(images[i].mean().item<double>(), wanted.item<double>(), slack);
    changed += labels[i][i].item<double>() < 1 ? 1 : 0;
  }
  EXPECT_GT(changed, count / 2);
}

TEST(MixUp, MixesLabelsAsImages) {
  const Marked m = marked(32);
  const Element pair = Element::named({{"images", m.images}, {"labels", m.labels}});
  expect_mixed_alike(MixUp({.alpha = 1, .seed = 3})(pair, {.training = true}), 32, false);
  const Element same = MixUp({.seed = 3})(pair);
  EXPECT_TRUE(same["images"].tensor().equal(m.images));
  EXPECT_TRUE(same["labels"].tensor().equal(m.labels));
  const Tensor alone = MixUp({.alpha = 1, .seed = 3})(m.images, {.training = true});
  const Element both = MixUp({.alpha = 1, .seed = 3})(pair, {.training = true});
  EXPECT_TRUE(alone.equal(both["images"].tensor()));
  EXPECT_THROW(MixUp({.alpha = 0}), InvalidArgument);
}

TEST(MixUp, DrawsWeightsOfTheBetaDistribution) {
  // Images of 0 and 1: what is left of one is its own or the other's weight.
  const Tensor x = (arange(4000) % 2).to(kFloat32).view({4000, 1, 1, 1});
  for (const double alpha : {0.2, 1.0, 3.0}) {
    const Tensor y = MixUp({.alpha = alpha, .seed = 9})(x, {.training = true}).flatten();
    const Tensor mixed = y.masked_select(y.gt(0).logical_and(y.lt(1)));
    // Of two unlike images the weight has mean 1/2 and variance 1 / (8 alpha + 4).
    EXPECT_NEAR(mixed.mean().item<double>(), 0.5, 0.06);
    if (alpha >= 1) {
      EXPECT_NEAR(mixed.var().item<double>(), 1 / (8 * alpha + 4), 0.01);
    }
  }
}

TEST(CutMix, MixesLabelsByArea) {
  const Marked m = marked(32);
  const Element pair = Element::named({{"images", m.images}, {"labels", m.labels}});
  const Element mixed = CutMix({.factor = {1, 1}, .seed = 3})(pair, {.training = true});
  expect_mixed_alike(mixed, 32, true);
  const Tensor images = mixed["images"].tensor();
  for (int64_t i = 0; i < 32; ++i) {
    std::set<double> seen;
    for (const double v : to_vector<double>(images[i].flatten().to(kFloat64))) seen.insert(v);
    EXPECT_LE(seen.size(), 2U);
  }
  EXPECT_EQ(shape_of(CutMix()(photos(0), {.training = true})), (Shape{0, 9, 9, 3}));
}

TEST(RandAugment, AppliesLayersThatAreDrawn) {
  const Tensor x = photos(4);
  const RandAugment layer({.seed = 5}), again({.seed = 5});
  EXPECT_TRUE(layer(x).equal(x));
  std::set<std::string> results;
  for (int call = 0; call < 12; ++call) {
    const Tensor y = layer(x, {.training = true});
    EXPECT_EQ(shape_of(y), shape_of(x));
    EXPECT_FALSE(y.isnan().any().item<bool>());
    EXPECT_TRUE(y.equal(again(x, {.training = true})));
    results.insert(std::to_string(y.sum().item<double>()));
  }
  EXPECT_GT(results.size(), 9U);
  EXPECT_TRUE(RandAugment({.num_ops = 0})(x, {.training = true}).equal(x));
  EXPECT_EQ(shape_of(layer(photos(0), {.training = true})), (Shape{0, 9, 9, 3}));
}

TEST(AugMix, MixesImagesWithWhatChainsOfLayersMakeOfThem) {
  const Tensor x = photos(4);
  const AugMix layer({.seed = 5}), again({.seed = 5});
  EXPECT_TRUE(layer(x).equal(x));
  std::set<std::string> results;
  double moved = 0;
  for (int call = 0; call < 12; ++call) {
    const Tensor y = layer(x, {.training = true});
    EXPECT_EQ(shape_of(y), shape_of(x));
    EXPECT_FALSE(y.isnan().any().item<bool>());
    EXPECT_GE(y.min().item<double>(), 0);
    EXPECT_LE(y.max().item<double>(), 255);
    EXPECT_TRUE(y.equal(again(x, {.training = true})));
    results.insert(std::to_string(y.sum().item<double>()));
    moved += (y - x).abs().mean().item<double>();
  }
  EXPECT_GT(results.size(), 9U);
  EXPECT_GT(moved, 12);
  // Chains without layers, whose shares and the images' own sum to 1.
  const Tensor same = AugMix({.chain_depth = 0, .seed = 5})(x, {.training = true});
  EXPECT_LT((same - x).abs().max().item<double>(), 1e-3);
  EXPECT_EQ(AugMix().base().sub_layers().size(), 11U);
  EXPECT_EQ(AugMix({.all_ops = false}).base().sub_layers().size(), 7U);
  EXPECT_EQ(shape_of(layer(photos(0), {.training = true})), (Shape{0, 9, 9, 3}));
  EXPECT_THROW(AugMix({.alpha = 0}), InvalidArgument);
  EXPECT_THROW(AugMix({.num_chains = 0}), InvalidArgument);
}

TEST(Pipeline, CallsLayersOneAfterTheOther) {
  const Pipeline layer({Resizing(4, 4), RandomFlip({.seed = 2}), Rescaling(2)});
  const Tensor x = photos(3);
  EXPECT_TRUE(layer(x).equal(Resizing(4, 4)(x) * 2));
  const Tensor flipped = RandomFlip({.seed = 2})(Resizing(4, 4)(x), {.training = true});
  EXPECT_TRUE(layer(x, {.training = true}).equal(flipped * 2));
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, 9, 9, 3}),
            (Shape{kUnknownDim, 4, 4, 3}));
}

TEST(Resizing, KeepsWholeNumbersWhole) {
  const Tensor x = photos(2).to(kUint8);
  const Tensor y = Resizing(4, 5)(x);
  EXPECT_EQ(y.scalar_type(), kUint8);
  EXPECT_TRUE(y.equal(Resizing(4, 5)(x.to(kFloat32)).round().to(kUint8)));
  // Bicubic goes beyond the pixels, and not round to the other end.
  const Tensor edges = from_vector<double>({0, 255, 0, 255}, {1, 2, 2, 1}).to(kUint8);
  const Tensor wide = Resizing(8, 8, {.interpolation = "bicubic"})(edges);
  const Tensor exact = Resizing(8, 8, {.interpolation = "bicubic"})(edges.to(kFloat32));
  EXPECT_GT(exact.max().item<double>(), 255.5);
  EXPECT_TRUE(wide.equal(exact.round().clamp(0, 255).to(kUint8)));
}

TEST(Resizing, TakesOneImageAndNone) {
  const Tensor x = photos(1);
  EXPECT_TRUE(Resizing(4, 5)(x[0]).equal(Resizing(4, 5)(x)[0]));
  EXPECT_EQ(shape_of(Resizing(4, 5)(photos(0))), (Shape{0, 4, 5, 3}));
  EXPECT_EQ(shape_of(CenterCrop(4, 5)(photos(0))), (Shape{0, 4, 5, 3}));
  EXPECT_EQ(Resizing(4, 5).base().compute_output_shape({9, 9, 3}), (Shape{4, 5, 3}));
}

TEST(ImageLayers, RefuseWhatTheyCannotDo) {
  EXPECT_THROW(Resizing(0, 3), InvalidArgument);
  EXPECT_THROW(Resizing(3, 3, {.interpolation = "sharp"}), InvalidArgument);
  EXPECT_THROW(Resizing(3, 3, {.crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true}),
               InvalidArgument);
  EXPECT_THROW(RandomFlip({.mode = "up"}), InvalidArgument);
  EXPECT_THROW(RandomRotation(2), InvalidArgument);
  EXPECT_THROW(RandomRotation(0.1, {.fill_mode = "mirror"}), InvalidArgument);
  EXPECT_THROW(RandomContrast(-0.5), InvalidArgument);
  EXPECT_THROW(RandomHue(0.5, {.data_format = "last"}), InvalidArgument);
  EXPECT_THROW(RandomBrightness(0.5, {.value_range = {1, 1}}), InvalidArgument);
  EXPECT_THROW(RandomHue(0.5)(zeros({1, 4, 4, 2}), {.training = true}), InvalidArgument);
  EXPECT_THROW(RandomFlip()(zeros({4, 4}), {.training = true}), InvalidArgument);
}

// 5 images on two replicas, the last batch with one empty replica.
TEST(ImageLayers, TrainInAModelOverReplicas) {
  const Strategy strategy = strategy_of(2);
  const auto scope = strategy.scope();
  Sequential model({InputLayer({9, 9, 3}), Resizing(8, 8), RandomFlip(), RandomRotation(0.1),
                    RandomContrast(0.2), Flatten(), Dense(1)});
  model.compile({.optimizer = SGD({.learning_rate = 1e-7}), .loss = MeanSquaredError()});
  const Dataset rows = Dataset::from_tensor_slices({photos(5), ones({5, 1})}).batch(2);
  const History history = model.fit(rows, {.epochs = 2, .verbose = Verbose::kSilent});
  EXPECT_TRUE(std::isfinite(history.history.at("loss")[1]));
}

}  // namespace
}  // namespace cohort::keras
