// SPDX-License-Identifier: Apache-2.0
//
// What a model is besides the loops: its layers, what of them trains, its summary, its weights in
// files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/summary.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

namespace fs = std::filesystem;

TEST(Summary, IsKerasTable) {
  Sequential model({InputLayer({784}), Dense(64, {.activation = "relu", .name = "hidden"}),
                    Dense(10, {.name = "an_output_layer_with_a_long_name"})},
                   "mlp");
  EXPECT_EQ(model.summary_text(),
            "Model: \"mlp\"\n"
            "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓\n"
            "┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃\n"
            "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩\n"
            "│ hidden (Dense)                  │ (None, 64)             │        50,240 │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│ an_output_layer_with_a_long_na… │ (None, 10)             │           650 │\n"
            "│ (Dense)                         │                        │               │\n"
            "└─────────────────────────────────┴────────────────────────┴───────────────┘\n"
            " Total params: 50,890 (198.79 KB)\n"
            " Trainable params: 50,890 (198.79 KB)\n"
            " Non-trainable params: 0 (0.00 B)\n");
  EXPECT_EQ(model.count_params(), 50890);
}

TEST(Summary, ShowsModelsInModelsAsKeras) {
  const auto inner = std::make_shared<Sequential>(
      std::vector<Layer>{InputLayer({4}), Dense(3, {.name = "first"}), Dense(2, {.name = "last"})},
      "inner");
  const auto middle =
      std::make_shared<Sequential>(std::vector<Layer>{InputLayer({4}), Layer(inner),
                                                      Dense(2, {.name = "end_of_the_middle_one"})},
                                   "middle");
  const Sequential model({InputLayer({4}), Layer(middle), Dense(1, {.name = "end"})}, "outer");
  EXPECT_EQ(model.summary_text().find("inner"), std::string::npos);
  EXPECT_EQ(model.summary_text({.expand_nested = true}),
            "Model: \"outer\"\n"
            "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓\n"
            "┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃\n"
            "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩\n"
            "│ middle (Sequential)             │ (None, 2)              │            29 │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│    └ inner (Sequential)         │ (None, 2)              │            23 │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│       └ first (Dense)           │ (None, 3)              │            15 │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│       └ last (Dense)            │ (None, 2)              │             8 │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│    └ end_of_the_middle_one      │ (None, 2)              │             6 │\n"
            "│ (Dense)                         │                        │               │\n"
            "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
            "│ end (Dense)                     │ (None, 1)              │             3 │\n"
            "└─────────────────────────────────┴────────────────────────┴───────────────┘\n"
            " Total params: 32 (128.00 B)\n"
            " Trainable params: 32 (128.00 B)\n"
            " Non-trainable params: 0 (0.00 B)\n");
}

TEST(Summary, ShowsWhatIsNotBuiltYetAndTheOptimizersState) {
  Sequential model({Dense(1, {.name = "line"})});
  EXPECT_NE(
      model.summary_text().find("│ line (Dense)                    │ ?                      │ "
                                "  0 (unbuilt) │"),
      std::string::npos)
      << model.summary_text();
  model.compile({.optimizer = Adam(), .loss = "mse"});
  model.fit(zeros({4, 3}), zeros({4, 1}), {.verbose = Verbose::kSilent});
  EXPECT_NE(model.summary_text().find(" Trainable params: 4 (16.00 B)\n"), std::string::npos);
  EXPECT_NE(model.summary_text().find(" Optimizer params: "), std::string::npos);
}

// Whose loss no other program knows.
TEST(Export, LeavesOutWhatTrains) {
  const std::string path =
      (fs::temp_directory_path() / ("export_" + std::to_string(getpid()) + ".keras")).string();
  Sequential model({InputLayer({3}), Dense(4, {.activation = "tanh"}), Dense(1)});
  model.compile({.optimizer = Adam(),
                 .loss = [](const Tensor& y, const Tensor& p) { return (y - p).square().mean(-1); },
                 .metrics = {"mae"}});
  const Tensor x = ones({4, 3});
  model.fit(x, zeros({4, 1}), {.verbose = Verbose::kSilent});
  model.save(path);
  const auto saved = fs::file_size(path);
  ::testing::internal::CaptureStderr();
  model.export_to(path);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_LT(fs::file_size(path), saved);
  const auto exported = load_model(path);
  fs::remove(path);
  EXPECT_FALSE(exported->compiled());
  EXPECT_TRUE(exported->predict(x, {.verbose = Verbose::kSilent})
                  .equal(model.predict(x, {.verbose = Verbose::kSilent})));
  EXPECT_THROW(exported->fit(x, x), FailedPrecondition);
  EXPECT_THROW(model.export_to("m.h5"), InvalidArgument);
  EXPECT_THROW(Sequential({Dense(1)}).export_to(path), FailedPrecondition);
}

TEST(MovingAverages, AreTheWeightsAfterFit) {
  Sequential model({Dense(1)});
  model.compile({.optimizer = keras::SGD({.learning_rate = 0.1, .use_ema = true}), .loss = "mse"});
  const Tensor x = arange(20).to(kFloat32).reshape({10, 2});
  model.fit(x / 20, x.sum(1), {.epochs = 2, .batch_size = 2, .verbose = Verbose::kSilent});
  const std::vector<Variable> state = model.optimizer().variables();
  ASSERT_EQ(state.size(), 3u);  // iterations and two averages
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(model.get_weights()[i].equal(state[i + 1].value())) << i;
  }
}

TEST(Summary, FormatsNumbers) {
  using namespace cohort::keras::internal;
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(memory_text(1023), "1023.00 B");
  EXPECT_EQ(memory_text(1024 * 1024 * 3 / 2), "1.50 MB");
  EXPECT_EQ(shape_text({kUnknownDim}), "(None,)");
  EXPECT_EQ(shape_text({kUnknownDim, 28, 28}), "(None, 28, 28)");
}

TEST(Sequential, IsBuiltByAnInputLayerOrByData) {
  Sequential with({InputLayer({3}), Dense(2)});
  EXPECT_EQ(with.variables().size(), 2u);
  with.add(Dense(5));
  EXPECT_EQ(with.variables().size(), 4u);
  EXPECT_EQ(with.compute_output_shape({kUnknownDim, 3}), (Shape{kUnknownDim, 5}));
  Sequential without;
  without.add(Dense(2));
  EXPECT_TRUE(without.variables().empty());
  EXPECT_EQ(shape_of(without(zeros({4, 3}))), (Shape{4, 2}));
  EXPECT_THROW(without.add(Dense(1)), FailedPrecondition);
}

class Weights : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cohort-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "w.safetensors") const {
    return (folder_ / name).string();
  }
  fs::path folder_;
};

std::vector<Layer> layers() {
  return {InputLayer({4}), Dense(3, {.name = "a"}), BatchNormalization({.name = "norm"}),
          Dense(2, {.name = "b"})};
}

TEST_F(Weights, SavedUnderTwoReplicasLoadUnderOne) {
  std::vector<Tensor> expected;
  const Tensor x = arange(12, kFloat32).reshape({3, 4}) / 12;
  {
    const MirroredStrategy two(std::vector<Device>{"CPU:0", "CPU:1"});
    const auto scope = two.scope();
    Sequential model(layers());
    model.compile({.optimizer = "adam", .loss = "mse"});
    model.fit(x, zeros({3, 2}), {.epochs = 2, .batch_size = 3, .verbose = Verbose::kSilent});
    expected = model.get_weights();
    model.save_weights(path());
  }
  const TensorFile file = load_tensors(path());
  EXPECT_EQ(file.tensors.size(), 8u);
  EXPECT_EQ(file.tensors.count("layers/dense/vars/0"), 1u);
  EXPECT_EQ(file.tensors.count("layers/batch_normalization/vars/2"), 1u);
  EXPECT_EQ(file.metadata.at("format"), "cohort");
  Sequential model(layers());
  model.load_weights(path());
  const std::vector<Tensor> got = model.get_weights();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
  // Under several replicas each has moving statistics of its own, so this is the first output
  // that can be compared.
  const Tensor output = model.predict(x, {.verbose = Verbose::kSilent});

  const MirroredStrategy three(std::vector<Device>{"CPU:0", "CPU:1", "CPU:2"});
  const auto scope = three.scope();
  Sequential other(layers());
  other.load_weights(path());
  for (const auto& [name, v] : other.weight_paths()) {
    if (v.name().starts_with("norm/moving")) continue;
    for (const Variable& component : v.components()) {
      EXPECT_TRUE(component.value().equal(file.tensors.at(name))) << component.name();
    }
  }
  const Tensor again = other.predict(x, {.batch_size = 3, .verbose = Verbose::kSilent});
  EXPECT_LT((again - output).abs().max().item<double>(), 1e-6);
}

TEST_F(Weights, ListEveryDifference) {
  Sequential saved({InputLayer({4}), Dense(3, {.name = "a"}), Dense(2, {.name = "b"})});
  saved.save_weights(path());
  Sequential other(
      {InputLayer({4}), Dense(3, {.name = "a"}), Dense(5, {.name = "b"}), Dense(1, {.name = "c"})});
  const std::vector<Tensor> before = other.get_weights();
  testing::expect_error<InvalidArgument>(
      {"layers/dense_1/vars/0 (b/kernel): float32[3, 2] in the file, float32[3, 5] in the model",
       "not in the file: layers/dense_2/vars/0 (c/kernel)"},
      [&] { other.load_weights(path()); });
  const std::vector<Tensor> after = other.get_weights();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i]));
  Sequential smaller({InputLayer({4}), Dense(3, {.name = "a"})});
  EXPECT_THROW(smaller.load_weights(path()), InvalidArgument);
}

struct Block : Model {
  explicit Block(const std::string& name) : Model(name) {}
  Dense inner = add("inner", Dense(2));
  Tensor call(const Tensor& x, const CallArgs& args) override { return inner(x, args); }
};

TEST_F(Weights, OfLayersOfOneClassAreToldApartByTheirPath) {
  const auto make = [] {
    return std::make_unique<Sequential>(
        std::vector<Layer>{std::make_shared<Block>("left"), std::make_shared<Block>("right"),
                           Dense(2, {.name = "one"}), Dense(2, {.name = "other"})});
  };
  const auto model = make();
  EXPECT_THROW(model->save_weights(path()), FailedPrecondition);
  const Tensor x = ones({1, 2});
  const Tensor expected = (*model)(x);
  model->save_weights(path());
  const auto tensors = load_tensors(path()).tensors;
  EXPECT_EQ(tensors.size(), 8u);
  for (const char* name : {"layers/block/inner/vars/0", "layers/block_1/inner/vars/0",
                           "layers/dense/vars/0", "layers/dense_1/vars/0"}) {
    EXPECT_EQ(tensors.count(name), 1u) << name;
  }
  const auto other = make();
  EXPECT_FALSE((*other)(x).equal(expected));
  other->load_weights(path());
  EXPECT_TRUE((*other)(x).equal(expected));
}

TEST_F(Weights, SayWhichFilesWork) {
  Sequential model({InputLayer({1}), Dense(1)});
  for (const char* name : {"w", "w.keras", "w.h5"}) {
    testing::expect_error<InvalidArgument>({".weights.h5", ".safetensors"},
                                           [&] { model.save_weights(path(name)); });
  }
  EXPECT_THROW(model.load_weights(path()), Error);
}

// A weight of the constructor and one of build(), which throws at first.
struct TwoWeights : LayerBase {
  bool fail = true;
  Variable early = add_weight({.name = "early", .shape = {1}, .initializer = "ones"});
  void build(const Shape&) override {
    add_weight({.name = "late", .shape = {1}, .initializer = "ones"});
    if (fail) throw Cancelled("on purpose");
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x * early; }
  std::string class_name() const override { return "TwoWeights"; }
};

TEST(Model, KeepsTheWeightsOfALayersConstructor) {
  const auto layer = std::make_shared<TwoWeights>();
  Sequential model({layer});
  ASSERT_EQ(model.variables().size(), 1u);
  EXPECT_THROW(model(ones({1, 1})), Cancelled);
  ASSERT_EQ(model.variables().size(), 1u);
  EXPECT_EQ(model.variables()[0], layer->early);
  layer->fail = false;
  model(ones({1, 1}));
  EXPECT_EQ(model.trainable_variables().size(), 2u);
}

struct Pair : LayerBase {
  explicit Pair(const Layer& layer) { track(layer); }
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  std::string class_name() const override { return "Pair"; }
};

TEST(Model, TrainsASharedLayerUnlessAllItsParentsAreFrozen) {
  const Dense shared(1);
  shared.base().ensure_built({kUnknownDim, 1});
  const auto left = std::make_shared<Pair>(shared), right = std::make_shared<Pair>(shared);
  Sequential model({left, right});
  EXPECT_EQ(model.trainable_variables().size(), 2u);
  left->set_trainable(false);  // and with it the layer that both share
  EXPECT_EQ(model.trainable_variables().size(), 0u);
  shared.set_trainable(true);
  EXPECT_EQ(model.trainable_variables().size(), 2u);
  EXPECT_EQ(model.non_trainable_variables().size(), 0u);
  EXPECT_EQ(left->trainable_variables().size(), 0u);
}

Dataset batches(int64_t rows, int64_t batch) {
  const Tensor x = (arange(2 * rows, kFloat32) + 1).reshape({rows, 2}) / (2 * rows);
  return Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(batch);
}

class TrainingOn : public ::testing::TestWithParam<int> {
 protected:
  TrainingOn() { set_seed(1); }
  const Strategy strategy_ =
      GetParam() == 1 ? get_strategy()
                      : Strategy(MirroredStrategy(std::vector<Device>{"CPU:0", "CPU:1"}));
};
INSTANTIATE_TEST_SUITE_P(Replicas, TrainingOn, ::testing::Values(1, 2));

TEST_P(TrainingOn, FreezingTakesEffectAtOnceAndThawingWithANewOptimizer) {
  const auto scope = strategy_.scope();
  const Dense first(2), last(1);
  Sequential model({InputLayer({2}), first, last});
  const Dataset data = batches(12, 6);
  const auto changes = [&] {
    const Tensor before = model.get_weights()[0];
    model.fit(data, {.verbose = Verbose::kSilent});
    return !model.get_weights()[0].equal(before);
  };
  first.set_trainable(false);
  model.compile({.optimizer = "adam", .loss = "mse"});
  EXPECT_FALSE(changes());
  first.set_trainable(true);
  testing::expect_error<InvalidArgument>({"was built with", "calling compile() again"},
                                         [&] { changes(); });
  model.compile({.optimizer = "adam", .loss = "mse"});
  EXPECT_TRUE(changes());
  first.set_trainable(false);
  EXPECT_FALSE(changes());
  first.set_trainable(true);
  EXPECT_TRUE(changes());
}

TEST_P(TrainingOn, TrainsALayerThatIsUsedTwiceOnce) {
  const auto scope = strategy_.scope();
  const Dense shared(2, {.kernel_initializer = "ones", .kernel_regularizer = L2(0.5)});
  Sequential model({InputLayer({2}), shared,
                    std::make_shared<Sequential>(std::vector<Layer>{shared}), Dense(1)});
  EXPECT_EQ(model.variables().size(), 4u);
  EXPECT_EQ(model.trainable_variables().size(), 4u);
  EXPECT_EQ(model.count_params(), 6 + 3);
  EXPECT_NEAR(model.regularization_loss().item<double>(), 0.5 * 4, 1e-6);
  model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse"});
  EXPECT_EQ(model.fit(batches(12, 6), {.verbose = Verbose::kSilent}).epoch.size(), 1u);
  EXPECT_FALSE(model.get_weights()[0].equal(ones({2, 2})));
}

TEST(Model, KeepsTheStateOfAnOptimizerThatIsCompiledAgain) {
  Sequential model({Dense(1)});
  const Optimizer adam = Adam();
  const auto steps_after_fit = [&](const Optimizer& optimizer) {
    model.compile({.optimizer = optimizer, .loss = "mse"});
    model.fit(batches(8, 2), {.verbose = Verbose::kSilent});
    return model.optimizer().iterations().value().item<int64_t>();
  };
  EXPECT_EQ(steps_after_fit(adam), 4);
  EXPECT_EQ(steps_after_fit(adam), 8);
  EXPECT_EQ(steps_after_fit(Adam()), 4);
}

TEST(Model, PredictsForManyThreads) {
  Sequential model({InputLayer({2}), Dense(3), Dense(1)});
  const Tensor x = arange(128, kFloat32).reshape({64, 2}) / 128;
  const Tensor expected = model.predict(x, {.verbose = Verbose::kSilent});
  std::vector<std::jthread> threads;
  std::vector<Tensor> results(4);
  for (Tensor& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        result = model.predict(x, {.batch_size = 5, .verbose = Verbose::kSilent});
      }
    });
  }
  threads.clear();
  for (const Tensor& result : results) {
    EXPECT_LT((result - expected).abs().max().item<double>(), 1e-5);
    EXPECT_FALSE(result.requires_grad());
  }
}

TEST(Model, SetsWeightsThatFit) {
  Sequential model({InputLayer({2}), Dense(1)});
  const std::vector<Tensor> weights = {tensor({3, 4}).unsqueeze(1), tensor({5})};
  model.set_weights(weights);
  EXPECT_EQ(model(ones({1, 2})).item<float>(), 12);
  model.set_weights({weights[0] + 1, weights[1]});
  EXPECT_TRUE(model.get_weights()[0].equal(weights[0] + 1));
  model.set_weights(weights);
  EXPECT_THROW(model.set_weights(std::vector<Tensor>{tensor({1})}), InvalidArgument);
  EXPECT_THROW(model.set_weights(std::vector<Tensor>{tensor({1, 2}), tensor({5})}),
               InvalidArgument);
}

TEST(Model, SetsNoWeightUnlessAllFit) {
  Sequential model({InputLayer({2}), Dense(1)});
  const std::vector<Tensor> before = model.get_weights();
  const std::vector<Tensor> weights = {ones({2, 1}), ones({1}).to(at::kComplexFloat)};
  testing::expect_error<InvalidArgument>({"[set_weights] expected float32 for", "bias"},
                                         [&] { model.set_weights(weights); });
  EXPECT_TRUE(model.get_weights()[0].equal(before[0]));
}

}  // namespace
}  // namespace cohort::keras
