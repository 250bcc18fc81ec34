// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/config.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cohort/base/error.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {

struct ShiftOptions {
  double offset = 0;
  Regularizer penalty = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f.required("offset", c.offset);
    f("penalty", c.penalty);
  }
};

}  // namespace cohort::keras

namespace cohort::my {

struct Shift : keras::LayerImpl<keras::ShiftOptions> {
  using LayerImpl::LayerImpl;
  Tensor call(const Tensor& x, const keras::CallArgs&) override { return x + config().offset; }
};
COHORT_REGISTER_SERIALIZABLE("my", Shift);

// As programs write it that keep their config themselves.
struct Twice : keras::LayerBase {
  explicit Twice(double by) : factor(by) {}
  double factor;
  Tensor call(const Tensor& x, const keras::CallArgs&) override { return x * factor; }
  keras::Config get_config() const override {
    return keras::Config::object({{"name", name()}, {"factor", factor}});
  }
  static std::shared_ptr<Twice> from_config(const keras::Config& config) {
    return std::make_shared<Twice>(config.number("factor"));
  }
};
COHORT_REGISTER_SERIALIZABLE("my", Twice);

struct Unknown : Shift {
  using Shift::Shift;
};

struct AxesOptions {
  std::vector<int64_t> axes = {};
  float scale = 1;
  keras::DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("axes", c.axes);
    f("scale", c.scale);
  }
};
template <class T>
struct AxesLayer : keras::LayerImpl<AxesOptions> {
  using LayerImpl::LayerImpl;
  Tensor call(const Tensor& x, const keras::CallArgs&) override { return x; }
};
using Axes = AxesLayer<Shift>;
COHORT_REGISTER_SERIALIZABLE("my", Axes);

struct Hundredfold : keras::Sequential {
  using Sequential::Sequential;
  Tensor call(const Tensor& x, const keras::CallArgs& args) override {
    return Sequential::call(x, args) * 100;
  }
  static std::shared_ptr<Hundredfold> from_config(const keras::Config& config) {
    auto made = std::make_shared<Hundredfold>();
    for (const keras::Config& layer : config.at("layers").list()) {
      made->add(keras::Layer::deserialize(layer));
    }
    return made;
  }
};
COHORT_REGISTER_SERIALIZABLE("my", Hundredfold);

// Has its base's from_config alone, which makes the base.
struct Derived : Hundredfold {
  using Hundredfold::Hundredfold;
};
static_assert(keras::internal::MadeByFromConfig<Hundredfold>);
static_assert(!keras::internal::MadeByFromConfig<Derived>);

}  // namespace cohort::my

namespace cohort::keras {
namespace {

using testing::expect_error;

TEST(Config, IsWrittenAsPythonWritesIt) {
  const Config config = Config::object({{"a", nullptr},
                                        {"b", true},
                                        {"c", 3},
                                        {"d", 2.0},
                                        {"e", 1e-7},
                                        {"f", 0.0001},
                                        {"g", "\"\xC3\xA9\n"},
                                        {"h", Config::List{1, "x"}},
                                        {"i", Config::object()}});
  EXPECT_EQ(config.to_json(),
            "{\"a\": null, \"b\": true, \"c\": 3, \"d\": 2.0, \"e\": 1e-07, \"f\": 0.0001, "
            "\"g\": \"\\\"\\u00e9\\n\", \"h\": [1, \"x\"], \"i\": {}}");
  EXPECT_EQ(Config::parse_json(config.to_json()), config);
  expect_error<InvalidArgument>({"finite"}, [] { Config(INFINITY).to_json(); });
}

TEST(Config, RefusesWhatIsNoJson) {
  expect_error<InvalidArgument>({"byte 5", "JSON"}, [] { Config::parse_json("{\"a}"); });
  expect_error<InvalidArgument>({"\"a\" twice"},
                                [] { Config::parse_json("{\"a\": 1, \"a\": 2}"); });
  expect_error<InvalidArgument>({"nested", "200"},
                                [] { Config::parse_json(std::string(100000, '[')); });
  EXPECT_THROW(Config::parse_json(""), InvalidArgument);
}

TEST(Config, ValuesOfAnotherKindAreRefused) {
  const Config config = Config::object({{"units", "four"}, {"rate", 2.5}});
  expect_error<InvalidArgument>({"a number", "\"four\""}, [&] { return config.number("units"); });
  expect_error<InvalidArgument>({"whole", "2.5"}, [&] { return config.at("rate").integer(); });
  expect_error<InvalidArgument>({"\"unit\"", "units, rate"}, [&] { return config.at("unit"); });
}

TEST(FromConfig, NamesWhatIsUnknownAndWhatIsMissing) {
  Config config = Dense(4).serialize();
  Config inner = config.at("config");
  inner.set("unitz", 3);
  config.set("config", inner);
  expect_error<InvalidArgument>({"Dense", "unitz"}, [&] { return Layer::deserialize(config); });
  expect_error<InvalidArgument>({"Dense", "units"}, [&] {
    return Layer::deserialize(
        Config::object({{"class_name", "Dense"}, {"config", Config::object()}}));
  });
  inner = Dense(4).get_config();
  inner.set("use_bias", 3);
  config.set("config", inner);
  expect_error<InvalidArgument>({"Dense", "use_bias", "true or false", "3"},
                                [&] { return Layer::deserialize(config); });
  inner = Dense(4).get_config();
  inner.set("quantization_config", Config::object({{"mode", "int8"}}));
  config.set("config", inner);
  expect_error<Unimplemented>({"Dense", "quantization_config"},
                              [&] { return Layer::deserialize(config); });
  EXPECT_THROW(Layer::deserialize(Config::object({{"class_name", "Dense"}, {"config", Config(3)}})),
               InvalidArgument);
}

// As compile() of Keras writes what it was given as a function.
TEST(FromConfig, FunctionsOfKerasAreReadByTheirNames) {
  const auto function = [](const char* name) {
    return Config::object({{"module", "builtins"},
                           {"class_name", "function"},
                           {"config", name},
                           {"registered_name", "function"}});
  };
  const Loss loss = Loss::deserialize(function("mean_squared_error"));
  EXPECT_EQ(loss(ones({2, 1}), ones({2, 1}) * 3).item<double>(), 4);
  EXPECT_EQ(loss.serialize(), Config("mean_squared_error"));
  EXPECT_EQ(Metric::deserialize(function("mean_absolute_error")).name(), "mean_absolute_error");
  expect_error<InvalidArgument>({"\"my_loss\"", "mean_squared_error"},
                                [&] { Loss::deserialize(function("my_loss")); });
  expect_error<InvalidArgument>({"\"my_metric\""},
                                [&] { Metric::deserialize(function("my_metric")); });
}

// What another version of Keras wrote is no reason not to open its models.
TEST(FromConfig, UnknownMembersOfAFileAreLeftOut) {
  const Sequential model({InputLayer({2}, {.batch_size = 3}), Dense(4)});
  Config config = Config::parse_json(model.to_json());
  Config::List layers = config.at("config").at("layers").list();
  Config input = Config::object();
  for (const auto& [name, value] : layers.at(0).at("config").members()) {
    input.set(name == "batch_shape" ? "batch_input_shape" : name, value);
  }
  layers[0].set("config", input);
  layers[1].at("config").set("unitz", 3).set("batch_input_shape", Config::List{3, 2});
  config.at("config").set("layers", layers);
  EXPECT_EQ(model_from_json(config.to_json())->to_json(), model.to_json());
  expect_error<InvalidArgument>({"Dense", "unitz"}, [&] { model_from_config(config); });
}

TEST(FromConfig, FunctionsCannotBeWritten) {
  const auto linear = [](const Tensor& x) { return x; };
  expect_error<Unimplemented>({"activation", "function"},
                              [&] { Dense(4, {.activation = linear}).get_config(); });
  const auto penalty = [](const Tensor& x) -> Tensor { return x.sum(); };
  expect_error<Unimplemented>({"regularizer", "function"},
                              [&] { Dense(4, {.kernel_regularizer = penalty}).get_config(); });
  expect_error<Unimplemented>({"learning_rate", "function"}, [&] {
    Adam({.learning_rate = [](int64_t) { return 0.1; }}).get_config();
  });
  expect_error<Unimplemented>({"loss", "function"}, [] {
    Loss([](const Tensor& y, const Tensor& p) -> Tensor { return y - p; }).serialize();
  });
}

TEST(FromConfig, OptionsOfCohortAloneAreKept) {
  const Config huber = Huber({.delta = 2}).serialize();
  EXPECT_EQ(huber.at("config").number("delta"), 2);
  EXPECT_EQ(Loss::deserialize(huber).serialize(), huber);
  const Config sgd = SGD({.lazy_rows = true}).serialize();
  EXPECT_EQ(Optimizer::deserialize(sgd).serialize(), sgd);
}

TEST(FromConfig, AnOptimizerKeepsTheRateItHasNow) {
  const Adam adam({.learning_rate = 0.5});
  adam.set_learning_rate(0.125);
  EXPECT_EQ(Optimizer::deserialize(adam.serialize()).learning_rate(), 0.125);
}

TEST(OwnClasses, AreWrittenAndReadByTheirRegisteredName) {
  const Layer shift = Handle<my::Shift>({.offset = 2, .penalty = "l1", .name = "s"});
  const Config config = shift.serialize();
  EXPECT_EQ(config.text("registered_name"), "my>Shift");
  EXPECT_TRUE(config.at("module").is_null());
  const Layer read = Layer::deserialize(config);
  EXPECT_EQ(read.serialize(), config);
  EXPECT_EQ(read(zeros({1, 1})).item<double>(), 2);
  const Layer twice = std::make_shared<my::Twice>(3);
  EXPECT_EQ(Layer::deserialize(twice.serialize())(ones({1, 1})).item<double>(), 3);
}

TEST(OwnClasses, AreInModels) {
  const Sequential model({InputLayer({2}), Handle<my::Shift>({.offset = 2}), Dense(3)});
  const auto read = model_from_json(model.to_json());
  EXPECT_EQ(read->to_json(), model.to_json());
}

TEST(OwnClasses, UnknownOnesSayHowToRegister) {
  const Layer layer = std::make_shared<my::Unknown>(ShiftOptions{.offset = 1});
  EXPECT_EQ(layer.base().class_name(), "Unknown");
  expect_error<InvalidArgument>({"Unknown", "COHORT_REGISTER_SERIALIZABLE"},
                                [&] { return Layer::deserialize(layer.serialize()); });
  struct Plain : LayerBase {
    Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  };
  expect_error<Unimplemented>({"Plain", "get_config"},
                              [] { Sequential({std::make_shared<Plain>()}).to_json(); });
}

TEST(OwnClasses, OfABuiltInNameAreNotTaken) {
  Config config = Dense(4).serialize();
  config.set("registered_name", "other>Dense").set("module", nullptr);
  expect_error<InvalidArgument>({"other>Dense"}, [&] { return Layer::deserialize(config); });
}

TEST(OwnClasses, KeepListsOfNumbersAsTheyAre) {
  const Layer layer = Handle<my::Axes>({.axes = {-1, -3, 2}, .scale = 0.5F, .name = "a"});
  const Config config = layer.get_config();
  EXPECT_EQ(config.at("axes").to_json(), "[-1, -3, 2]");
  EXPECT_EQ(config.number("scale"), 0.5);
  EXPECT_EQ(Layer::deserialize(layer.serialize()).get_config(), config);
}

TEST(OwnClasses, OfTemplatesAndOfSequentialHaveNames) {
  EXPECT_EQ(Layer(Handle<my::Axes>()).base().class_name(), "AxesLayer");
  const my::Hundredfold model({InputLayer({1}), Dense(1, {.kernel_initializer = "ones"})});
  EXPECT_EQ(model.class_name(), "Hundredfold");
  const auto read = model_from_json(model.to_json());
  EXPECT_NE(dynamic_cast<my::Hundredfold*>(read.get()), nullptr);
  EXPECT_EQ(read->predict(ones({1, 1})).item<double>(), 100);
}

TEST(OwnClasses, AreRegisteredOncePerNameInAPackage) {
  auto& table = internal::class_table<LayerBase>();
  const auto make = internal::make_of_config<my::Shift>;
  EXPECT_NO_THROW(table.add(typeid(my::Shift), "my", "Shift", make));
  expect_error<InvalidArgument>({"my>Shift", "another class"}, [&] {
    table.add(typeid(my::Twice), "my", "Shift", internal::make_of_config<my::Twice>);
  });
  expect_error<InvalidArgument>({"package"},
                                [&] { table.add(typeid(my::Shift), "", "Dense", make); });
}

TEST(FromConfig, OtherPackagesOfKerasAreNotKeras) {
  Config config = Dropout(0.5).serialize();
  config.set("module", "keras_cv.layers").set("registered_name", "keras_cv>Dropout");
  expect_error<InvalidArgument>({"keras_cv>Dropout"}, [&] { return Layer::deserialize(config); });
  config.set("module", "keras.layers").set("class_name", "Quantum");
  config.set("registered_name", nullptr);
  expect_error<Unimplemented>({"Quantum", "not there yet"},
                              [&] { return Layer::deserialize(config); });
}

TEST(Config, ComparesAndPrintsWhatJsonHasNot) {
  const int64_t large = int64_t{1} << 53;
  EXPECT_FALSE(Config(large) == Config(large + 1));
  EXPECT_EQ(Config(2), Config(2.0));
  expect_error<InvalidArgument>({"a whole number", "NaN"}, [] { return Config(NAN).integer(); });
  std::ostringstream out;
  out << Config(-INFINITY);
  EXPECT_EQ(out.str(), "-Infinity");
  EXPECT_FALSE(GlorotUniform(~uint64_t{0}) == GlorotUniform(~uint64_t{0} - 1));
  Config tree = Config::object({{"a", Config::object({{"b", 1}})}});
  tree.at("a").set("b", 2);
  EXPECT_EQ(tree.at("a").integer("b"), 2);
}

TEST(Shapes, TooLargeToCountAreRefused) {
  const int64_t large = int64_t{1} << 53;
  expect_error<InvalidArgument>({"2^63"}, [&] {
    Sequential({InputLayer({large, 4096}), Flatten()}).summary_text();
  });
}

TEST(Options, OfAKindAreComparedWithWhatAllOfItHave) {
  EXPECT_FALSE(SGDOptions{.learning_rate = 0.1} == SGDOptions{.learning_rate = 5.0});
  EXPECT_EQ(SGDOptions{.learning_rate = 0.1}, SGDOptions{.learning_rate = 0.1});
  EXPECT_FALSE(HuberOptions{.reduction = Reduction::kSum} == HuberOptions{});
  EXPECT_FALSE(FlattenOptions{.name = "a"} == FlattenOptions{});
  EXPECT_EQ(config_of(SGDOptions{.learning_rate = 0.5}).number("learning_rate"), 0.5);
  const Config config = SGD({.learning_rate = 0.5, .momentum = 0.25}).get_config();
  EXPECT_EQ(options_of<SGDOptions>(config).momentum, 0.25);
}

TEST(Options, AreComparedAndPrintedByTheirFields) {
  DenseConfig a, b;
  a.units = b.units = 4;
  EXPECT_EQ(a, b);
  b.kernel_regularizer = L2(0.5);
  EXPECT_FALSE(a == b);
  a.kernel_regularizer = L2(0.5);
  EXPECT_EQ(a, b);
  a.activation = [](const Tensor& x) { return x; };
  EXPECT_FALSE(a == b);
  b.activation = a.activation;
  EXPECT_EQ(a, b);
  std::ostringstream out;
  out << RandomOptions{.mean = 1, .seed = 3};
  EXPECT_EQ(out.str(), "(seed=3, mean=1.0, stddev=0.05)");
}

TEST(Model, AFunctionAsLossLeavesTheModelReadable) {
  Sequential model({InputLayer({2}), Dense(3)});
  model.compile({.loss = [](const Tensor& y, const Tensor& p) -> Tensor { return y - p; }});
  EXPECT_THROW(model.get_compile_config(), Unimplemented);
  EXPECT_FALSE(model_from_json(model.to_json())->compiled());
}

TEST(Model, WhatIsNotThereYetIsNamed) {
  Sequential model({InputLayer({2}), Dense(3)});
  model.compile({.loss = "mse"});
  Config config = model.serialize();
  Config compile = config.at("compile_config");
  compile.set("loss_weights", Config::List{1.0, 2.0});
  config.set("compile_config", compile);
  expect_error<InvalidArgument>({"loss_weights"}, [&] { return model_from_config(config); });
  expect_error<InvalidArgument>({"a model", "Dense"},
                                [] { return model_from_config(Dense(3).serialize()); });
}

TEST(Constraints, ProjectAsKerasDoes) {
  const Tensor w = from_vector<float>({3, -4, 0.3F, 0.4F}, {2, 2});
  const auto close = [](const Tensor& a, const std::vector<float>& b) {
    const std::vector<float> got = to_vector<float>(a);
    for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(got[i], b[i], 1e-5) << i;
  };
  close(NonNeg()(w), {3, 0, 0.3F, 0.4F});
  close(MaxNorm(2, 1)(w), {1.2F, -1.6F, 0.3F, 0.4F});
  close(UnitNorm(1)(w), {0.6F, -0.8F, 0.6F, 0.8F});
  close(MinMaxNorm({.min_value = 1, .max_value = 2, .rate = 0.5, .axis = 1})(w),
        {2.1F, -2.8F, 0.45F, 0.6F});
  EXPECT_FALSE(Constraint());
  expect_error<InvalidArgument>({"non_neg", "nonneg"}, [] { return Constraint("nonneg"); });
}

}  // namespace
}  // namespace cohort::keras
