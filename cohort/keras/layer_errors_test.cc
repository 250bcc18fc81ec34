// SPDX-License-Identifier: Apache-2.0
//
// Errors inside layers say which layer of which model it was.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/keras/keras.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

struct Mixer : LayerBase {
  using LayerBase::LayerBase;
  std::string class_name() const override { return "Mixer"; }
  Tensor call(const Tensor& x, const CallArgs&) override { return x.matmul(zeros({7, 2})); }
};

struct Block : LayerBase {
  Layer inner = add("mix", Layer(std::make_shared<Mixer>()));
  std::string class_name() const override { return "Block"; }
  Tensor call(const Tensor& x, const CallArgs& args) override { return inner(x, args); }
};

TEST(LayerErrors, OfLibTorchNameLayerPathClassAndInputWithoutStackTrace) {
  Sequential model({Layer(std::make_shared<Block>())}, "net");
  model.layers()[0].base().set_name("block");
  const std::string text = testing::error_text<InvalidArgument>([&] { model(zeros({3, 4})); });
  testing::expect_words(text,
                        {"[mix] ", "mat1 and mat2 shapes cannot be multiplied (3x4 and 7x2)",
                         "when calling Mixer.call() of layer net/block/mix with float32 [3, 4]"});
  EXPECT_EQ(text.find("Block.call"), std::string::npos) << text;  // once, where it happened
  EXPECT_EQ(text.find(".cpp"), std::string::npos) << text;
  EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
}

TEST(LayerErrors, KeepTheirCategory) {
  struct Late : LayerBase {
    std::string class_name() const override { return "Late"; }
    Tensor call(const Tensor&, const CallArgs&) override {
      throw FailedPrecondition("[late] expected another day");
    }
  };
  const Layer late = std::make_shared<Late>();
  late.base().set_name("late");
  testing::expect_words(testing::error_text<FailedPrecondition>([&] { late(zeros({2})); }),
                        {"[late] expected another day", "when calling Late.call() of layer late"});
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  struct Foreign : LayerBase {
    std::string class_name() const override { return "Foreign"; }
    Tensor call(const Tensor&, const CallArgs&) override { throw Own("mine"); }
  };
  EXPECT_EQ(testing::error_text<Own>([&] { Layer(std::make_shared<Foreign>())(zeros({2})); }),
            "mine");
}

TEST(LayerErrors, OfWrongInputsAndOfBuildNameThePath) {
  Sequential model({Dense(3, {.name = "first"}), Dense(2, {.name = "second"})}, "net");
  model(zeros({2, 4}));
  testing::expect_words(
      testing::error_text<InvalidArgument>([&] {
        model(zeros({2, 5}));
      }),
      {"last axis 4, got shape [2, 5]", "Dense.call() of layer net/first with float32 [2, 5]"});
  Sequential flat({Conv2D(2, 3, {.name = "conv"})}, "flat");
  testing::expect_words(testing::error_text<InvalidArgument>([&] {
                          flat(zeros({2, 5}));
                        }),
                        {"when calling Conv2D.build() of layer flat/conv with [None, 5]"});
}

TEST(LayerErrors, InFitOnSeveralReplicasArriveOnce) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  Sequential model({Layer(std::make_shared<Mixer>("mix")), Dense(1)}, "net");
  model.compile({.loss = "mse"});
  const Dataset data = Dataset::from_tensor_slices({zeros({8, 4}), zeros({8, 1})}).batch(4);
  const std::string text =
      testing::error_text<InvalidArgument>([&] { model.fit(data, {.verbose = Verbose::kSilent}); });
  testing::expect_words(text,
                        {"mat1 and mat2", "Mixer.call() of layer net/mix with float32 [2, 4]"});
}

struct Widen : LayerBase {  // and does not say so
  using LayerBase::LayerBase;
  std::string class_name() const override { return "Widen"; }
  Tensor call(const Tensor& x, const CallArgs&) override { return at::cat({x, x}, -1); }
};

TEST(OutputShapes, WrongPromisesAreFoundAtTheLayerThatMadeThem) {
  Sequential model({Dense(3), Layer(std::make_shared<Widen>("widen")), Dense(2)}, "net");
  testing::expect_words(
      testing::error_text<InvalidArgument>([&] {
        model(zeros({5, 4}));
      }),
      {"[widen] expected outputs of shape [None, 3], as Widen.compute_output_shape promises",
       "got [5, 6] from Widen.call() of layer net/widen for inputs of shape [5, 3]",
       "override compute_output_shape"});
  Sequential built({InputLayer({4}), Layer(std::make_shared<Widen>("widen")), Dense(2)}, "net");
  testing::expect_words(testing::error_text<InvalidArgument>([&] {
                          built(zeros({5, 4}));
                        }),
                        {"[widen] expected outputs"});
}

TEST(OutputShapes, RightPromisesHoldForOtherBatchesAndInputs) {
  Sequential model({Dense(3), Flatten(), Dense(2)});
  EXPECT_EQ(shape_of(model(zeros({5, 4}))), (Shape{5, 2}));
  EXPECT_EQ(shape_of(model(zeros({0, 4}))), (Shape{0, 2}));
  Sequential any({Dense(3)});
  any(zeros({5, 4}));
  EXPECT_EQ(shape_of(any(zeros({5, 6, 4}))), (Shape{5, 6, 3}));
}

// A file may say any shape.
TEST(OutputShapes, OfTooFewAxesAreRefused) {
  for (const Layer& layer : std::vector<Layer>{
           Dense(3), LSTM(2), SimpleRNNCell(2), Bidirectional(GRU(2)), TimeDistributed(Dense(2)),
           ConvLSTM2D(2, 3), Conv2D(2, 3), MaxPooling2D(), Flatten()}) {
    SCOPED_TRACE(layer.name());
    testing::expect_error<InvalidArgument>({"expected"},
                                           [&] { layer.base().compute_output_shape({}); });
  }
  for (const Layer& layer :
       std::vector<Layer>{LSTM(2), TimeDistributed(Dense(2)), ConvLSTM2D(2, 3)}) {
    SCOPED_TRACE(layer.name());
    testing::expect_error<InvalidArgument>(
        {layer.name()}, [&] { layer.base().compute_output_shape({kUnknownDim}); });
  }
  testing::expect_error<InvalidArgument>({"batch_shape that begins with the batch"}, [] {
    DeclaredInput::from_config(Config::object({{"batch_shape", Config::List()}}));
  });
}

// Sizes that no tensor has: neither an endless loop nor an overflow.
TEST(LayerErrors, OfHugeSizesNameTheOption) {
  static constexpr int64_t kHuge = INT64_MAX;
  testing::expect_error<InvalidArgument>({"frame_length <= 1073741824"},
                                         [] { STFTSpectrogram({.frame_length = kHuge}); });
  testing::expect_error<InvalidArgument>(
      {"fft_length"}, [] { STFTSpectrogram({.frame_length = 4, .fft_length = kHuge}); });
  testing::expect_error<InvalidArgument>({"strides up to 2147483647"},
                                         [] { Conv1DTranspose(3, 3, {.strides = kHuge}); });
}

// LibTorch tells that in an exception of its own kind.
TEST(LayerErrors, OfANumberThatTheTypeHasNotNameTheLayer) {
  const RandomZoom zoom(0.5, {.fill_mode = "constant", .fill_value = -1e308, .name = "zoom"});
  testing::expect_error<InvalidArgument>({"[zoom] value cannot be converted", "of layer zoom"},
                                         [&] {
                                           zoom(ones({2, 5, 6, 3}), {.training = true});
                                         });
}

}  // namespace
}  // namespace cohort::keras
