// SPDX-License-Identifier: Apache-2.0
//
// What TensorFlow's users write and expect to compile: each expression, and that it does the right
// thing. Those of one folder alone are tested there.
#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <type_traits>
#include <unordered_map>

#include "cohort/cohort.h"
#include "cohort/strategy/local_strategy_extended.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

Dataset pairs() {
  return Dataset::from_tensor_slices({arange(6, kFloat32).reshape({3, 2}), arange(3)}).batch(2);
}

// A reference to the tensor of an element that ends with the line keeps the tensor.
TEST(Expressions, TensorsOfElementsThatEnd) {
  const auto element = [] { return Element({full({3}, 5), full({2}, 7)}); };
  const Tensor& first = element()[0];
  const auto one = [] { return Element(full({3}, 6)); };
  const Tensor& whole = one();
  const Tensor& named = Element::named({{"x", full({4}, 8)}})["x"];
  for (int i = 0; i < 3; ++i) EXPECT_EQ(full({3}, i).sum().item<float>(), 3 * i);  // other memory
  EXPECT_EQ(first.sum().item<float>(), 15);
  EXPECT_EQ(whole.sum().item<float>(), 18);
  EXPECT_EQ(named.sum().item<float>(), 32);
  static_assert(!std::is_convertible_v<Element&, Tensor&>);
}

// --- Collectives and reductions ------------------------------------------------------------------

TEST(Expressions, AllReduceOfAVariable) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(2.0);
  const auto sums = strategy.run([&] {
    const auto ctx = get_replica_context();
    return std::tuple(ctx.all_reduce("sum", v), ctx.all_gather(Variable(ones({1})), 0));
  });
  EXPECT_EQ(std::get<0>(sums[1]).item<float>(), 4);
  EXPECT_EQ(std::get<1>(sums[0]).numel(), 2);
}

TEST(Expressions, GatherAndReduceOfADatasetsBatch) {
  const auto strategy = two();
  for (const auto& batch : strategy.distribute_dataset(pairs().take(1))) {
    const Element all = strategy.gather(batch, 0);
    EXPECT_EQ(to_vector<float>(all[0].tensor()), (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(to_vector<int64_t>(all[1].tensor()), (std::vector<int64_t>{0, 1}));
    const Element sum = strategy.reduce(ReduceOp::kSum, batch);
    EXPECT_EQ(to_vector<float>(sum[0].tensor()), (std::vector<float>{2, 4}));
  }
  const Dataset words = Dataset::from_tensor_slices(std::vector<std::string>{"a", "b", "c"});
  for (const auto& batch : strategy.distribute_dataset(words.batch(3))) {
    EXPECT_EQ(strategy.gather(batch, 0).strings(), (std::vector<std::string>{"a", "b", "c"}));
    expect_error<InvalidArgument>({"[element] expected one tensor", "string"},
                                  [&] { strategy.reduce("sum", batch); });
  }
}

TEST(Expressions, ReductionsByName) {
  const auto strategy = two();
  const PerReplica<Tensor> x({scalar(1), scalar(3)});
  const std::string mean = "MEAN";
  EXPECT_EQ(strategy.reduce("sum", x).item<float>(), 4);
  EXPECT_EQ(strategy.reduce(mean, x).item<float>(), 2);
  EXPECT_EQ(strategy.reduce("max", PerReplica<int>({1, 3})), 3);
  EXPECT_EQ(strategy.extended().reduce_to("sum", x, "CPU:0")[0].item<float>(), 4);
  const std::vector<ReduceItem> items = {{PerReplica<Gradient>({scalar(1), scalar(3)}), "CPU:1"}};
  EXPECT_EQ(strategy.extended().batch_reduce_to("sum", items)[0][0].dense().item<float>(), 4);
  ReductionToOneDevice ops;
  EXPECT_EQ(ops.reduce("sum", items[0].value, "CPU:0")[0].dense().item<float>(), 4);
  expect_error<InvalidArgument>({"expected sum, mean, min, max or product", "got \"total\""},
                                [&] { strategy.reduce("total", x); });
}

TEST(Expressions, AxesFromAVector) {
  const auto strategy = two();
  const PerReplica<Tensor> x({ones({2, 3}), ones({2, 3})});
  const std::vector<int64_t> axes = {0, 1};
  const std::vector<int> last = {-1};
  EXPECT_EQ(strategy.reduce("sum", x, axes).item<float>(), 12);
  EXPECT_EQ(strategy.reduce("sum", x, last).numel(), 2);
  EXPECT_EQ(strategy.reduce("sum", x, {0}).numel(), 3);
  EXPECT_EQ(strategy.reduce("sum", x, 0).numel(), 3);
}

TEST(Expressions, DestinationsByNameAndNumbersToBroadcast) {
  const auto strategy = two();
  StrategyExtended& extended = strategy.extended();
  const PerReplica<Tensor> x({scalar(1), scalar(3)});
  EXPECT_EQ(extended.reduce_to(ReduceOp::kSum, x, "CPU:0").size(), 1U);
  EXPECT_EQ(extended.reduce_to(ReduceOp::kSum, x, {"CPU:0", "CPU:1"}).size(), 2U);
  const Mirrored<Tensor> everywhere = extended.broadcast_to(3.0);
  ASSERT_EQ(everywhere.size(), 2U);
  EXPECT_EQ(everywhere[1].item<float>(), 3);
  EXPECT_EQ(extended.broadcast_to(3, "CPU:1")[0].item<float>(), 3);
}

TEST(Expressions, UnorderedMapsAreNests) {
  const auto strategy = two();
  using Values = std::unordered_map<std::string, Tensor>;
  const auto got = strategy.run(
      [](const Tensor& x) {
        const Values out = {{"b", x}, {"a", x * 10.0}, {"c", x * 100.0}};
        return get_replica_context().all_reduce(ReduceOp::kSum, out);
      },
      PerReplica<Tensor>({scalar(1), scalar(2)}));
  EXPECT_EQ(got[1].at("a").item<float>(), 30);
  const Values mean = strategy.reduce("mean", got);
  EXPECT_EQ(mean.at("c").item<float>(), 300);
  std::vector<float> in_order;
  for (const Tensor& leaf : flatten(mean)) in_order.push_back(leaf.item<float>());
  EXPECT_EQ(in_order, (std::vector<float>{30, 3, 300}));  // a, b, c
  const Dataset named = Dataset::range(1).map([](int64_t x) {
    return std::unordered_map<std::string, int64_t>{{"y", x}, {"x", x}};
  });
  EXPECT_EQ((*named.begin()).names(), (std::vector<std::string>{"x", "y"}));
}

// --- Variables and gradients ---------------------------------------------------------------------

TEST(Expressions, VariableOfTheNumberZero) {
  const Variable zero(0);
  const Variable one(1);
  EXPECT_EQ(zero.value().item<float>(), 0);
  EXPECT_EQ(one.value().item<float>(), 1);
}

TEST(Expressions, TapesAndOptimizersTakeLists) {
  const Variable v(2.0);
  const Variable w(3.0);
  keras::SGD sgd({.learning_rate = 0.5});
  {
    GradientTape tape;
    const Tensor loss = v * w;
    const Gradients gradients = tape.gradient(loss, {v, w});
    ASSERT_EQ(gradients.size(), 2U);
    EXPECT_EQ(gradients[0].gradient.dense().item<float>(), 3);
  }
  {
    Tensor x = scalar(2);
    Tensor y = scalar(5);
    GradientTape tape;
    tape.watch(x);
    tape.watch(y);
    const std::vector<Tensor> gradients = tape.gradient(x * y, {x, y});
    EXPECT_EQ(gradients[1].item<float>(), 2);
  }
  sgd.apply_gradients({{scalar(1), v}});
  EXPECT_EQ(v.value().item<float>(), 1.5);
  keras::SGD again({.learning_rate = 0.5});
  again.apply_gradients({{scalar(1), v}, {scalar(2), w}});
  EXPECT_EQ(v.value().item<float>(), 1);
  EXPECT_EQ(w.value().item<float>(), 2);
}

TEST(Expressions, MeansTakeValuesAlone) {
  const keras::Metric mean = keras::Mean();
  mean.update_state(tensor({1, 3}));
  EXPECT_EQ(mean.result().item<double>(), 2);
  const keras::Metric accuracy = keras::Accuracy();
  expect_error<InvalidArgument>({"[metric.update_state]", "labels and predictions", "\"accuracy\""},
                                [&] { accuracy.update_state(tensor({1})); });
}

// --- Data ----------------------------------------------------------------------------------------

TEST(Expressions, StructuredBindingsOverDatasets) {
  int64_t rows = 0;
  for (auto& [x, y] : pairs()) {
    EXPECT_EQ(x.size(0), y.size(0));
    rows += x.size(0);
  }
  EXPECT_EQ(rows, 3);
  for (const auto& [x, y] : pairs().as<Tensor, Tensor>()) rows += x.size(0) - y.size(0);
  EXPECT_EQ(rows, 3);
  const Dataset three = Dataset::zip({Dataset::range(2), Dataset::range(2), Dataset::range(2)});
  for (auto& [a, b, c] : three.as<int64_t, int64_t, double>()) {
    EXPECT_EQ(static_cast<double>(a + b), 2 * c);
  }
  expect_error<InvalidArgument>({"[element] expected two components for [x, y]", "as<...>()"}, [&] {
    for (auto& [x, y] : three) ADD_FAILURE() << x << y;
  });
}

TEST(Expressions, StructuredBindingsOverDistributedDatasets) {
  const auto strategy = two();
  const auto dist = strategy.distribute_dataset(pairs());
  float sum = 0;
  const auto step = [](const Tensor& x, const Tensor& y) { return x.sum() + y.sum(); };
  for (auto& [x, y] : dist) sum += strategy.reduce("sum", strategy.run(step, x, y)).item<float>();
  EXPECT_EQ(sum, 18);
  for (auto& [x, y] : dist.as<Tensor, Tensor>()) {
    sum -= strategy.reduce("sum", strategy.run(step, x, y)).item<float>();
  }
  EXPECT_EQ(sum, 0);
}

// --- Strategies ----------------------------------------------------------------------------------

// As a program writes it: without a name of cohort::internal.
class Counting : public LocalStrategyExtended {
 public:
  explicit Counting(std::vector<Device> devices)
      : LocalStrategyExtended({.name = "Counting", .devices = std::move(devices)}) {}
  int runs = 0;

 protected:
  void do_run(ReplicaBody body) override {
    ++runs;
    LocalStrategyExtended::do_run(body);
  }
};

TEST(Expressions, AStrategyOfOnesOwn) {
  const auto counting = std::make_shared<Counting>(std::vector<Device>{"CPU:0", "CPU:1"});
  const Strategy strategy(counting);
  const auto scope = strategy.scope();
  const Variable v(1.0, {.aggregation = Aggregation::kSum});
  strategy.run([&] { v.assign_add(scalar(1) * 1.0); });
  EXPECT_EQ(counting->runs, 1);
  EXPECT_EQ(v.components().size(), 2U);
  EXPECT_NE(text_of(strategy).find("<Counting#"), std::string::npos);
}

TEST(Expressions, StrategiesAndVariablesCanBeToldApart) {
  const auto a = two();
  const auto b = two();
  EXPECT_NE(a.extended().description(), b.extended().description());
  EXPECT_NE(a.extended().description().find("over CPU:0, CPU:1"), std::string::npos);
  const auto make = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    return Variable(1.0, {.name = "w"});
  };
  const Variable of_a = make(a);
  const Variable of_b = make(b);
  const auto update = [&](const Variable& v) {
    return testing::error_text([&] { two().extended().update(v, [](const Variable&) {}); });
  };
  EXPECT_NE(update(of_a), update(of_b));
  EXPECT_NE(update(of_a).find(a.extended().description()), std::string::npos) << update(of_a);
  EXPECT_NE(update(of_b).find(b.extended().description()), std::string::npos) << update(of_b);
}

TEST(Expressions, VariablesOfOneNameCanBeToldApart) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable a(ones({2, 3}));
  const Variable b(ones({2, 3}));
  ASSERT_EQ(a.name(), b.name());
  const Tensor outside = tensor({5}, kInt64);
  const auto differ = [&](auto use) {
    const std::string of_a = testing::error_text([&] { use(a); });
    EXPECT_NE(of_a, testing::error_text([&] { use(b); })) << of_a;
  };
  differ([&](const Variable& v) { v.sparse_read(outside); });
  differ([&](const Variable& v) { embedding_lookup(v, outside.to(kFloat32)); });
  differ([](const Variable& v) { v.local_tensor(); });
  differ([&](const Variable& v) { Variable(v).assign(ones({4})); });
  differ([&](const Variable& v) { Variable(v).scatter_add({ones({1, 3}), outside}); });
}

// --- What is printed, and where values are -------------------------------------------------------

TEST(Expressions, Printing) {
  const auto strategy = two();
  EXPECT_NE(text_of(strategy).find("over CPU:0, CPU:1>"), std::string::npos);
  EXPECT_EQ(text_of(Variable(tensor({1, 2}), {.name = "w"})),
            "<Variable 'w' shape=[2] dtype=float32, value=[1. 2.]>");
  {
    const auto scope = strategy.scope();
    const Variable v(1.0, {.name = "w"});
    EXPECT_EQ(text_of(v),
              "MirroredVariable:{\n  0: <Variable 'w' shape=[] dtype=float32, value=1.>,\n"
              "  1: <Variable 'w/replica_1' shape=[] dtype=float32, value=1.>\n}");
    EXPECT_EQ(strategy.run([&] { return text_of(v); })[1],
              "<Variable 'w' shape=[] dtype=float32, value=1.>");
  }
  EXPECT_EQ(text_of(Variable()), "<Variable, empty handle>");
  EXPECT_EQ(text_of(Element({ones({1}), Element("text")})),
            "(Tensor([1.], shape=[1], dtype=float32), Tensor('text', shape=[], dtype=string))");
  EXPECT_EQ(text_of(Element::named({{"x", scalar(1)}, {"y", Element("b")}})),
            "{'x': Tensor(1., shape=[], dtype=float32), 'y': Tensor('b', shape=[], dtype=string)}");
  EXPECT_EQ(text_of(Element(std::vector<std::string>{"a", "b"})),
            "Tensor(['a' 'b'], shape=[2], dtype=string)");
  EXPECT_EQ(text_of(Dataset::range(4).batch(2)), "<Dataset range[4].batch of int64[?]>");
  EXPECT_EQ(text_of(pairs().element_spec()), "(float32[?,2], int64[?])");
  EXPECT_NE(text_of(strategy.distribute_dataset(Dataset::range(4).batch(2)))
                .find("<DistributedDataset for 2 replicas of int64["),
            std::string::npos);
}

TEST(Expressions, PrintingOfLayersModelsAndWhatTrainsThem) {
  const keras::Dense dense(3, {.name = "out"});
  EXPECT_EQ(text_of(dense), "<Dense name=out, built=False>");
  keras::Sequential model({dense}, "mlp");
  EXPECT_EQ(text_of(model), "<Sequential name=mlp, built=False>");
  model.ensure_built({kUnknownDim, 2});
  EXPECT_EQ(text_of(dense), "<Dense name=out, built=True>");
  EXPECT_EQ(text_of(model), "<Sequential name=mlp, built=True>");
  EXPECT_EQ(text_of(keras::Layer(dense)), text_of(dense));
  EXPECT_EQ(text_of(keras::Loss("mse")),
            "<Loss name=mean_squared_error, reduction=sum_over_batch_size>");
  EXPECT_EQ(text_of(keras::MeanSquaredError({.reduction = keras::Reduction::kNone})),
            "<Loss name=mean_squared_error, reduction=None>");
  EXPECT_EQ(text_of(keras::Adam()), "<Optimizer name=adam, learning_rate=0.001>");
  EXPECT_EQ(text_of(keras::SGD({.learning_rate = keras::ExponentialDecay(0.5, 10, 0.9)})),
            "<Optimizer name=sgd, learning_rate=0.5>");
  EXPECT_EQ(text_of(keras::Mean("m")), "<Metric name=m>");
  EXPECT_EQ(text_of(keras::Metric("accuracy")), "<Metric name=accuracy>");
  EXPECT_EQ(text_of(keras::Loss()), "<Loss, empty handle>");
  EXPECT_EQ(text_of(keras::Optimizer()), "<Optimizer, empty handle>");
  keras::Layer moved = dense;
  [[maybe_unused]] const keras::Layer elsewhere = std::move(moved);
  EXPECT_EQ(text_of(moved), "<Layer, empty handle>");  // NOLINT
  [[maybe_unused]] const keras::Sequential taken = std::move(model);
  EXPECT_EQ(text_of(model), "<Sequential, moved from>");  // NOLINT
}

TEST(Expressions, ValuesSayWhichReplicasDeviceTheyAreOn) {
  const auto strategy = two();
  const PerReplica<Tensor> x = strategy.run([] { return scalar(1); });
  EXPECT_EQ(x.device(1), Device("CPU:1"));
  EXPECT_EQ(x.map([](const Tensor& t) { return t.dim(); }).device(0), Device("CPU:0"));
  EXPECT_EQ(strategy.extended().broadcast_to(1.0).device(1), Device("CPU:1"));
  for (const auto& batch : strategy.distribute_dataset(Dataset::range(2).batch(2))) {
    EXPECT_EQ(batch.device(1), Device("CPU:1"));
  }
  const auto scope = strategy.scope();
  const Variable v(1.0);
  EXPECT_EQ(v.components()[1].device(), Device("CPU:1"));
  EXPECT_EQ(strategy.run([&] { return v.device().short_name(); })[1], "CPU:1");
  expect_error<FailedPrecondition>({"[per_replica.device]", "that a strategy made"},
                                   [] { PerReplica<int>({1}).device(0); });
}

TEST(Expressions, ListsOfVariables) {
  const Variable v(3.0), w(2.0);
  (v * w).sum().backward();
  const Gradients both = gradients_of({v, w});
  EXPECT_EQ(both[0].gradient.as_tensor().item<float>(), 2);
  EXPECT_EQ(gradients_of({w})[0].gradient.as_tensor().item<float>(), 3);
  all_reduce_grad({v, w}, "sum");
  zero_grad({v});
  EXPECT_FALSE(v.grad().defined());
  EXPECT_TRUE(w.grad().defined());
  zero_grad({v, w});
  EXPECT_FALSE(w.grad().defined());
  const keras::SGD optimizer({.learning_rate = 0.5});
  optimizer.build({v, w});
  GradientTape tape;
  optimizer.minimize((v * w).sum(), {v, w}, tape);
  EXPECT_EQ(v.value().item<float>(), 2);
  EXPECT_EQ(w.value().item<float>(), 0.5);
}

// `{}` is no options, not an optimizer to copy.
TEST(Expressions, OptimizersWithoutOptions) {
  const std::vector<keras::Optimizer> all = {
      keras::SGD({}),     keras::Adam({}),     keras::AdamW({}),  keras::RMSprop({}),
      keras::Adagrad({}), keras::Adadelta({}), keras::Adamax({}), keras::Nadam({}),
      keras::Ftrl({}),    keras::Lion({}),     keras::Lamb({}),   keras::Adafactor({}),
      keras::Muon({})};
  const std::vector<keras::Optimizer> without = {
      keras::SGD(),      keras::Adam(),      keras::AdamW(), keras::RMSprop(), keras::Adagrad(),
      keras::Adadelta(), keras::Adamax(),    keras::Nadam(), keras::Ftrl(),    keras::Lion(),
      keras::Lamb(),     keras::Adafactor(), keras::Muon()};
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(text_of(all[i]), text_of(without[i]));
  EXPECT_EQ(keras::Adagrad({0.5}).learning_rate(), 0.5);
  EXPECT_EQ(keras::Adagrad({.learning_rate = 0.25}).learning_rate(), 0.25);
}

}  // namespace
}  // namespace cohort
