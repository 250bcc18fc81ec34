// SPDX-License-Identifier: Apache-2.0
//
// Functional models, and losses and metrics by output, beside real Keras's: golden/functional.json.
#include <gtest/gtest.h>

#include "cohort/keras/internal/operation.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/operations.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_golden.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::strategy_of;

const Config::List& golden_models() {
  static const Config all = testing::read_golden(COHORT_GOLDEN "/functional.json");
  return all.list();
}

Tensor tensor_of_lists(const Config& config) {
  std::vector<float> numbers;
  Shape shape;
  const auto visit = [&](auto&& self, const Config& part, std::size_t depth) -> void {
    if (!part.is_list()) return numbers.push_back(static_cast<float>(part.number()));
    if (depth == shape.size()) shape.push_back(static_cast<int64_t>(part.list().size()));
    for (const Config& inner : part.list()) self(self, inner, depth + 1);
  };
  visit(visit, config, 0);
  return from_vector(numbers, shape);
}

std::vector<Tensor> tensors_of(const Config& list) {
  std::vector<Tensor> all;
  for (const Config& one : list.list()) all.push_back(tensor_of_lists(one));
  return all;
}

Element inputs_of(const Config& list) {
  std::vector<Element> all;
  for (const Tensor& one : tensors_of(list)) all.emplace_back(one);
  return all.size() == 1 ? all[0] : Element::tuple(std::move(all));
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer.name());
  return names;
}

void expect_outputs(Model& model, const Config& golden) {
  const Element out = model.predict_nest(inputs_of(golden.at("inputs")), {.batch_size = 3});
  const std::vector<Tensor> expected = tensors_of(golden.at("outputs"));
  ASSERT_EQ(out.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(out[i].tensor().allclose(expected[i], 1e-5, 1e-6)) << out[i].tensor();
  }
}

class FunctionalUnder : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, FunctionalUnder, ::testing::Values(1, 2));

TEST_P(FunctionalUnder, OpensWhatKerasWritesAndComputesTheSame) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  for (const Config& golden : golden_models()) {
    Config config = golden.at("config");
    config.set("compile_config", Config::object());
    const auto model = model_from_config(config);
    std::vector<std::string> layers;
    for (const Config& name : golden.at("layers").list()) layers.push_back(name.text());
    EXPECT_EQ(names_of(*model), layers);
    model->set_weights(tensors_of(golden.at("weights")));
    expect_outputs(*model, golden);

    const auto again = model_from_json(model->to_json());
    EXPECT_EQ(names_of(*again), layers);
    again->set_weights(model->get_weights());
    expect_outputs(*again, golden);
  }
}

// Keras writes 'training': False of every call of Dropout, and its fit drops all the same.
TEST(Functional, CallsThatKerasWroteAreToldWhetherTheyTrain) {
  const Config& golden = golden_models()[2];
  const auto model = model_from_config(golden.at("config"));
  model->set_weights(tensors_of(golden.at("weights")));
  const Tensor x = tensors_of(golden.at("inputs"))[0];
  EXPECT_TRUE((*model)(x).equal((*model)(x)));
  EXPECT_FALSE((*model)(x, {.training = true}).equal((*model)(x)));
}

TEST(Functional, CallsThatAreToldToTrainDoSoWhenTheyAreRead) {
  const KerasTensor x = Input({50});
  const Tensor ones_of = ones({2, 50});
  for (const bool training : {true, false}) {
    Model model(x, Dropout(0.5)(x, {.training = training}));
    const auto again = model_from_json(model.to_json());
    for (const bool fit : {true, false}) {
      EXPECT_EQ((*again)(ones_of, {.training = fit}).equal(ones_of), !training);
    }
    EXPECT_EQ(model_from_json(again->to_json())->to_json(), again->to_json());
  }
}

// Keras writes attention(q, key=k, value=v) as it was called.
TEST(Functional, InputsThatAreNamedHaveTheirPlaces) {
  const KerasTensor q = Input({3, 4}), k = Input({5, 4}), v = Input({5, 4});
  const KerasTensor all = KerasTensor::tuple({q, v, k});
  Model model(all, MultiHeadAttention(2, 2)(all));
  Config config = model.serialize();
  Config inner = config.at("config");
  Config::List layers = inner.at("layers").list();
  Config node = layers.back().at("inbound_nodes").list()[0];
  const Config::List args = node.at("args").list();
  node.set("args", Config::List{args[0]});
  node.set("kwargs", Config::object({{"key", args[2]}, {"value", args[1]}}));
  const auto with = [&](const Config& changed) {
    layers.back().set("inbound_nodes", Config::List{changed});
    inner.set("layers", layers);
    config.set("config", inner);
    return model_from_config(config);
  };
  const auto again = with(node);
  again->set_weights(model.get_weights());
  const Element x{random_normal({2, 3, 4}), random_normal({2, 5, 4}), random_normal({2, 5, 4})};
  EXPECT_TRUE((*again)(x).tensor().equal(model(x).tensor()));
  node.set("kwargs", Config::object({{"value", args[1]}, {"return_attention_scores", true}}));
  expect_error<Unimplemented>({"return_attention_scores"}, [&] { with(node); });
}

TEST(Functional, CallsOfAttentionKeepWhatTheyAreTold) {
  const KerasTensor x = Input({5, 4}), seen = Input({5, 5}, {.dtype = kBool});
  const MultiHeadAttention heads(2, 3);
  const Attention scores;
  const KerasTensor both = KerasTensor::tuple({x, x});
  Model model(KerasTensor::tuple({x, seen}),
              KerasTensor::tuple({heads(both, {.use_causal_mask = true}),
                                  scores(both, {.attention_mask = seen}), heads(both)}));
  const auto again = model_from_json(model.to_json());
  again->set_weights(model.get_weights());
  const Tensor values = random_normal({2, 5, 4}), pairs = random_normal({2, 5, 5}) > 0;
  const Element all{values, values};
  for (Model* one : {&model, again.get()}) {
    const Element out = (*one)(Element{values, pairs});
    EXPECT_TRUE(out[0].tensor().equal(heads(all, {.use_causal_mask = true}).tensor()));
    EXPECT_TRUE(out[1].tensor().equal(scores(all, {.attention_mask = pairs}).tensor()));
    EXPECT_TRUE(out[2].tensor().equal(heads(all).tensor()));
    EXPECT_FALSE(out[2].tensor().equal(out[0].tensor()));
  }
}

TEST(Functional, OperationsAreNodesAndNoLayers) {
  const KerasTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const KerasTensor inputs = KerasTensor::tuple({a, b});
  const KerasTensor first = 1 - (a + b) * 2 / b;
  const KerasTensor second = ops::power(ops::absolute(-a), 3) - ops::mod(b, 0.75);
  Model model(inputs, KerasTensor::tuple({first, second, ops::floor_divide(a, b) + 0.5}));
  EXPECT_EQ(names_of(model).size(), 2U);
  const auto again = model_from_json(model.to_json());
  EXPECT_EQ(again->to_json(), model.to_json());
  const Tensor x = random_normal({4, 3}), y = random_normal({4, 3});
  for (Model* one : {&model, again.get()}) {
    const Element out = (*one)(Element{x, y});
    EXPECT_TRUE(out[0].tensor().allclose(1 - (x + y) * 2 / y));
    EXPECT_TRUE(out[1].tensor().allclose((-x).abs().pow(3) - y.remainder(0.75)));
    EXPECT_TRUE(out[2].tensor().allclose((x / y).floor() + 0.5));
  }
}

TEST(Functional, OperationsSayShapesAndTypes) {
  const KerasTensor x = Input({5, 4}), whole = Input({4}, {.dtype = kInt32});
  EXPECT_EQ((x + Input({4})).shape(), (Shape{kUnknownDim, 5, 4}));
  EXPECT_EQ((whole * 2).dtype(), kInt32);
  EXPECT_EQ((whole * 2.5).dtype(), kFloat32);
  EXPECT_EQ((whole / 2).dtype(), kFloat32);
  EXPECT_EQ((x + whole).dtype(), kFloat32);
  EXPECT_EQ(ops::matmul(x, Input({4, 7})).shape(), (Shape{kUnknownDim, 5, 7}));
  expect_error<InvalidArgument>({"Add", "broadcast"}, [&] { x + Input({3}); });
  expect_error<InvalidArgument>({"Matmul"}, [&] { ops::matmul(x, x); });
}

TEST(Functional, PartsAreTakenAsInPython) {
  using ops::Index;
  const KerasTensor x = Input({5, 4});
  const Tensor values = random_normal({2, 5, 4});
  struct Part {
    std::vector<Index> key;
    Tensor expected;
  };
  const std::vector<Part> parts = {
      {{Index::all(), 0}, values.select(1, 0)},
      {{Index::ellipsis(), -1}, values.select(2, -1)},
      {{Index::all(), Index::slice(1, 4, 2), Index::new_axis()},
       values.slice(1, 1, 4, 2).unsqueeze(2)},
      {{Index::all(), Index::slice(-2, {})}, values.slice(1, 3)},
      {{Index::new_axis(), Index::ellipsis(), Index::slice(3, 1)},
       values.slice(2, 3, 3).unsqueeze(0)},
  };
  for (const Part& part : parts) {
    const KerasTensor y = ops::get_item(x, part.key);
    Shape batch = y.shape();
    std::ranges::replace(batch, kUnknownDim, int64_t{2});
    EXPECT_EQ(batch, shape_of(part.expected));
    Model model(x, y);
    EXPECT_TRUE(model(values).equal(part.expected));
    EXPECT_TRUE((*model_from_json(model.to_json()))(values).equal(part.expected));
  }
  expect_error<InvalidArgument>({"GetItem", "axis of 5"}, [&] {
    ops::get_item(x, {Index::all(), 5});
  });
  expect_error<InvalidArgument>({"at most 3 axes"}, [&] { ops::get_item(x, {0, 0, 0, 0}); });
  expect_error<Unimplemented>({"step above 0"},
                              [&] { ops::get_item(x, {Index::slice({}, {}, -1)}); });
}

TEST(Functional, OperationsThatAreNotKnownAreRefused) {
  const KerasTensor x = Input({2}, {.name = "x"});
  std::string text = Model(x, x + 1).to_json();
  for (std::size_t at = 0; (at = text.find("\"Add\"", at)) != std::string::npos;) {
    text.replace(at, 5, "\"Sinc\"");
  }
  expect_error<Unimplemented>({"Sinc", "TrueDivide"}, [&] { model_from_json(text); });
}

using internal::Operation;

// As files have it: null where a tensor stands.
data::TensorSpec spec_of(const char* kind, Config::List arguments, Config options,
                         const std::vector<data::TensorSpec>& x) {
  const Operation operation(kind, {arguments.begin(), arguments.end()}, "op", std::move(options));
  std::vector<data::ElementSpec> inputs(x.begin(), x.end());
  return operation
      .compute_output_spec(x.size() == 1 ? data::ElementSpec(x[0])
                                         : data::ElementSpec::tuple(inputs))
      .leaf();
}

TEST(Functional, FunctionsSayShapesAndTypes) {
  constexpr int64_t kAny = kUnknownDim;
  const data::TensorSpec rows{{kAny, kAny, 4}, kFloat32}, known{{kAny, 9, 4}, kFloat32};
  const data::TensorSpec whole{{kAny, 4}, kInt32};
  const Config none = Config::object();
  const Config::List two = {nullptr, nullptr}, listed = {Config(two)};
  EXPECT_EQ(spec_of("Maximum", two, none, {rows, known}).shape, known.shape);
  EXPECT_EQ(spec_of("Maximum", {nullptr, 0.5}, none, {rows}).shape, rows.shape);
  EXPECT_EQ(spec_of("Maximum", {nullptr, 0.5}, none, {whole}).dtype, kFloat32);
  EXPECT_EQ(spec_of("Minimum", {1, nullptr}, none, {whole}).dtype, kInt32);
  EXPECT_EQ(spec_of("Where", {nullptr, nullptr, 0.0}, none, {rows, known}).shape, known.shape);
  EXPECT_EQ(spec_of("Where", {nullptr, 1, 0}, none, {rows}).dtype, kInt32);
  EXPECT_EQ(spec_of("Where", {nullptr, 1, 0.5}, none, {whole}).dtype, kFloat32);
  EXPECT_EQ(spec_of("Less", {nullptr, 0}, none, {rows}).dtype, kBool);
  const Config last = Config::object({{"axis", -1}}), second = Config::object({{"axis", 1}});
  EXPECT_EQ(spec_of("Concatenate", listed, last, {rows, known}).shape, (Shape{kAny, 9, 8}));
  EXPECT_EQ(spec_of("Concatenate", listed, second, {rows, known}).shape, rows.shape);
  EXPECT_EQ(spec_of("Stack", listed, second, {rows, known}).shape, (Shape{kAny, 2, 9, 4}));
  const auto reshaped = [&](Config::List to, const data::TensorSpec& x) {
    return spec_of("Reshape", {nullptr}, Config::object({{"newshape", Config(std::move(to))}}), {x})
        .shape;
  };
  EXPECT_EQ(reshaped({-1, 16, 9}, rows), (Shape{kAny, 16, 9}));
  EXPECT_EQ(reshaped({2, -1}, {{3, 4}, kFloat32}), (Shape{2, 6}));
  expect_error<InvalidArgument>({"Reshape"}, [&] { reshaped({5, -1}, {{3, 4}, kFloat32}); });
  expect_error<InvalidArgument>({"Reshape", "left open"}, [&] { reshaped({-1, -1}, rows); });
  expect_error<InvalidArgument>({"Where", "broadcast"}, [&] {
    spec_of("Where", {nullptr, nullptr, 0}, none, {known, {{kAny, 5}, kFloat32}});
  });
  expect_error<InvalidArgument>({"Squeeze", "size 1"},
                                [&] { spec_of("Squeeze", {nullptr}, last, {rows}); });
  expect_error<Unimplemented>({"Exp", "expected tensors of the model as arguments"},
                              [&] { spec_of("Exp", {0.5}, none, {}); });
  expect_error<Unimplemented>({"Maximum", "or plain numbers", "true"}, [&] {
    spec_of("Maximum", {nullptr, true}, none, {rows});
  });
}

// What is not what the layers hand on would be another result.
TEST(Functional, MasksThatLayersDoNotHandOnAreRefused) {
  const std::string text = golden_models()[2].at("config").to_json();
  const std::string zero = R"("keras_history": ["tokens", 0, 0]}}, 0])";
  const std::size_t at = text.find(zero);
  ASSERT_NE(at, std::string::npos) << text;
  std::string other = text;
  other.replace(at + zero.size() - 2, 1, "2");
  expect_error<Unimplemented>({"masks that layers hand on", "not_equal"},
                              [&] { model_from_json(other); });
}

TEST_P(FunctionalUnder, TrainsByLossesOfItsOutputsAsKerasDoes) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  const Config& golden = golden_models()[0];
  Config config = golden.at("config");
  config.set("compile_config", Config::object());
  const auto model = model_from_config(config);
  model->set_weights(tensors_of(golden.at("weights")));
  model->compile({.optimizer = SGD({.learning_rate = 0.1}),
                  .loss = {{"price", "mse"}, {"sold", "binary_crossentropy"}},
                  .loss_weights = {{"price", 0.5}, {"sold", 2.0}},
                  .metrics = {{"sold", {"accuracy"}}, {"price", {"mae"}}}});
  const std::vector<Tensor> x = tensors_of(golden.at("inputs"));
  const Element y = Element::named({{"price", tensor_of_lists(golden.at("labels").at("price"))},
                                    {"sold", tensor_of_lists(golden.at("labels").at("sold"))}});
  const History history =
      model->fit(Element::named({{"a", x[0]}, {"b", x[1]}}), y,
                 {.epochs = 3, .batch_size = 4, .verbose = Verbose::kSilent, .shuffle = false});
  for (const auto& [name, values] : golden.at("history").members()) {
    ASSERT_TRUE(history.contains(name)) << name;
    for (std::size_t e = 0; e < 3; ++e) {
      EXPECT_NEAR(history.at(name)[e], values.list()[e].number(), 2e-5) << name << e;
    }
  }
  const auto clone = model_from_json(model->to_json());
  EXPECT_EQ(clone->get_compile_config(), model->get_compile_config());
}

TEST(Functional, IsDrawnByCallingLayers) {
  const KerasTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const Dense shared(4);
  const KerasTensor left = shared(a), right = shared(b);
  EXPECT_EQ(left.shape(), (Shape{kUnknownDim, 4}));
  Model model({a, b}, KerasTensor::named({{"left", left}, {"right", right}}));
  EXPECT_EQ(model.count_params(), 16);
  EXPECT_EQ(model.get_layer("a").name(), "a");
  EXPECT_EQ(model.get_layer(2).name(), shared.name());
  const Element out = model(Element{ones({2, 3}), zeros({2, 3})});
  EXPECT_TRUE(out["left"].tensor().equal(shared(ones({2, 3}))));
  EXPECT_TRUE(out["right"].tensor().equal(shared(zeros({2, 3}))));
  expect_error<InvalidArgument>({"get_layer", "\"c\""}, [&] { model.get_layer("c"); });
}

// Of Keras's classes that ask for shapes: what they are given is not a list, and a batch that an
// Input settles stays settled.
TEST(Functional, ConfigsSayShapesAsKerasAsksForThem) {
  const KerasTensor step = Input({3});
  const auto within = std::make_shared<Model>(step, Dense(2)(step));
  const KerasTensor x = Input({4, 3});
  const Model model(x, TimeDistributed(within)(x));
  const Config layer = model.get_config().at("layers").list()[1].at("config").at("layer");
  EXPECT_TRUE(layer.at("config").at("input_layers").list()[0].is_text());
  EXPECT_TRUE(layer.at("config").at("output_layers").list()[0].is_text());
  EXPECT_TRUE(model.get_config().at("input_layers").list()[0].is_list());
  EXPECT_EQ(model_from_json(model.to_json())->get_config(), model.get_config());
  const KerasTensor rows = Input({4, 3}, {.batch_size = 5});
  const Model fixed(rows, GRU(2, {.stateful = true})(rows));
  const Config build = fixed.get_config().at("layers").list()[1].at("build_config");
  EXPECT_EQ(build.at("input_shape").list()[0].integer(), 5);
}

TEST(Functional, RefusesWhatIsNotConnected) {
  const KerasTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const KerasTensor y = Dense(1)(b);
  expect_error<InvalidArgument>({"\"b\"", "not among the inputs"}, [&] { Model model(a, y); });
  expect_error<InvalidArgument>({"keras::Input"}, [&] { Model model(y, y); });
  expect_error<InvalidArgument>({"unique names"}, [&] {
    Model model(a, Dense(1, {.name = "twice"})(Dense(1, {.name = "twice"})(a)));
  });
}

TEST(Functional, LossesOfOutputsThatAreNotThereAreRefused) {
  const KerasTensor x = Input({2});
  const KerasTensor one = Dense(1, {.name = "one"})(x), two = Dense(1, {.name = "two"})(x);
  Model model(x, {one, two});
  expect_error<InvalidArgument>({"one, two", "\"three\""}, [&] {
    model.compile({.loss = {{"one", "mse"}, {"three", "mse"}}});
  });
  expect_error<InvalidArgument>({"2 outputs", "got 3"}, [&] {
    model.compile({.loss = {"mse", "mse", "mse"}});
  });
}

// Keras: a list of one output is that output to losses, metrics and logs.
TEST_P(FunctionalUnder, AListOfOneOutputIsTheOutput) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  const KerasTensor a = Input({3}), b = Input({3});
  const KerasTensor sum = Dense(1, {.name = "d"})(Add()(KerasTensor::tuple({a, b})));
  Model model(KerasTensor::tuple({a, b}), KerasTensor::tuple({sum}));
  const Element x{ones({4, 3}), ones({4, 3})};
  const Element y = ones({4, 1});
  const std::vector<std::string> names = {"loss", "mean_absolute_error"};
  model.compile({.loss = "mse", .metrics = {metrics::MeanAbsoluteError()}});
  EXPECT_EQ(model.train_on_batch(x, y).names(), names);
  model.compile({.loss = {{"d", "mse"}}, .metrics = {{"d", {metrics::MeanAbsoluteError()}}}});
  EXPECT_EQ(model.train_on_batch(x, y).names(), names);
  EXPECT_EQ(model.test_on_batch(x, Element::named({{"d", ones({4, 1})}})).names(), names);
}

// Keras: keras.Model(i, Conv2D(4, 3)(i)) with i = Input((None, None, 3)), called on (8, 8, 3).
TEST(Functional, AModelInAModelSaysTheShapesOfItsCall) {
  const KerasTensor any = Input({kUnknownDim, kUnknownDim, 3});
  const std::shared_ptr<Model> inner =
      std::make_shared<Model>(any, GlobalAveragePooling2D()(Conv2D(4, 3)(any)));
  const std::shared_ptr<Model> whole = std::make_shared<Model>(any, Conv2D(4, 3)(any));
  const KerasTensor image = Input({8, 8, 3});
  const KerasTensor map = Layer(whole)(image);
  EXPECT_EQ(map.shape(), (Shape{kUnknownDim, 6, 6, 4}));
  EXPECT_EQ(Layer(inner)(image).shape(), (Shape{kUnknownDim, 4}));
  Model model(image, Dense(2)(Flatten()(map)));
  EXPECT_EQ(shape_of(model(zeros({5, 8, 8, 3}))), (Shape{5, 2}));
  EXPECT_EQ(whole->compute_output_shape({7, 5, 4, 3}), (Shape{7, 3, 2, 4}));
  expect_error<InvalidArgument>({"at least 3"}, [&] { whole->compute_output_shape({7, 2, 4, 3}); });
}

// A file may say anything.
TEST(Functional, ConfigsOfBrokenOrEndlessCallsAreRefused) {
  const KerasTensor x = Input({2}, {.name = "x"});
  Model model(x, Activation("relu", {.name = "a"})(x));
  Config config = model.serialize();
  Config inner = config.at("config");
  inner.set("output_layers", Config::List{Config::List{"a"}});
  Config broken = config;
  broken.set("config", inner);
  expect_error<InvalidArgument>({"Functional"}, [&] { model_from_config(broken); });

  Config::List layers = inner.at("layers").list();
  Config entry = layers[1];
  const Config node = entry.at("inbound_nodes").list()[0];
  entry.set("inbound_nodes", Config::List(6'000, node));
  layers[1] = entry;
  inner.set("layers", layers);
  broken.set("config", inner);
  expect_error<InvalidArgument>({"at most 5000"}, [&] { model_from_config(broken); });
}

struct AddsTwo : Model {
  Dense out = add("out", Dense(1, {.use_bias = false, .kernel_initializer = "ones"}));
  Element call_nest(const Element& in, const CallArgs& args) override {
    return Element::tuple({out(in[0].tensor() + in[1].tensor(), args), in[0]});
  }
};

TEST_P(FunctionalUnder, ClassesTakeAndGiveSeveralTensors) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  AddsTwo model;
  model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = {"mse", Loss()}});
  const Element x{ones({4, 2}), full({4, 2}, 2)};
  const Element out = model.predict_nest(x);
  EXPECT_TRUE(out[0].tensor().equal(full({4, 1}, 6)));
  EXPECT_TRUE(out[1].tensor().equal(ones({4, 2})));
  const Logs logs = model.train_on_batch(x, Element{full({4, 1}, 4), zeros({4, 2})});
  EXPECT_NEAR(logs.number("loss"), 4, 1e-5);
  EXPECT_NEAR(logs.number("output_1_loss"), 4, 1e-5);
}

TEST_P(FunctionalUnder, CompileOptionsComeBackOutsideOfTheScope) {
  const Strategy strategy = strategy_of(GetParam());
  std::unique_ptr<Sequential> model;
  {
    auto scope = strategy.scope();
    model = std::make_unique<Sequential>(std::vector<Layer>{InputLayer({2}), Dense(3)});
    model->compile(
        {.loss = "mse", .metrics = {CategoricalAccuracy()}, .exact_uneven_batches = false});
  }
  const Config config = model->get_compile_config();
  EXPECT_FALSE(config.boolean("exact_uneven_batches"));
  model->compile_from_config(config);
  EXPECT_EQ(model->get_compile_config(), config);
  Config unknown = config;
  unknown.set("optimiser", "sgd");
  expect_error<InvalidArgument>({"optimiser"}, [&] { model->compile_from_config(unknown); });
}

TEST(Sequential, ALayerThatStandsTwiceIsNotWritten) {
  const Dense twice(2);
  Sequential model({InputLayer({2}), twice, twice});
  expect_error<Unimplemented>({twice.name(), "twice"}, [&] { model.to_json(); });
}

TEST(Sequential, LayersOfAConfigAreBuiltAndKeepWhatTheyTrain) {
  Sequential model({InputLayer({2}), Dense(3), Dense(1, {.trainable = false})});
  const Layer dense = Layer::deserialize(model.layers()[1].serialize());
  EXPECT_EQ(dense.variables().size(), 2U);
  Config config = model.get_config();
  config.set("trainable", false);
  const auto frozen = Sequential::from_config(config);
  EXPECT_FALSE(frozen->trainable());
  EXPECT_TRUE(frozen->layers()[1].trainable());
  EXPECT_FALSE(frozen->layers()[2].trainable());
}

}  // namespace
}  // namespace cohort::keras
