// SPDX-License-Identifier: Apache-2.0
//
// Models that functions return, that are assigned, and that containers hold.
#include <gtest/gtest.h>

#include <optional>
#include <type_traits>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;

// A program's own class: layers and a weight of its own.
struct Net : Model {
  explicit Net(int64_t units = 3) : hidden(add("hidden", Dense(units))) {}
  Dense hidden;
  Dense out = add("out", Dense(1));
  Variable scale;
  void build(const Shape&) override {
    scale =
        add_weight({.name = "scale", .shape = {1}, .initializer = "ones", .regularizer = L2(0.5)});
  }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return out(hidden(x, args), args) * scale;
  }
};

static_assert(std::is_move_constructible_v<Sequential> && std::is_move_assignable_v<Sequential>);
static_assert(std::is_move_constructible_v<Net> && std::is_move_assignable_v<Net>);
static_assert(std::is_move_constructible_v<Model> && std::is_move_assignable_v<Model>);
// An object does not lose its class on the way.
static_assert(!std::is_constructible_v<Model, Net> && !std::is_assignable_v<Model&, Net>);
static_assert(!std::is_constructible_v<Model, Sequential>);
static_assert(!std::is_copy_constructible_v<Net> && !std::is_copy_assignable_v<Net>);

Dataset data() {
  const Tensor x = (arange(16, kFloat32) + 1).reshape({8, 2}) / 16;
  return Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(4);
}
FitOptions quiet() { return {.verbose = Verbose::kSilent}; }

template <class M>
M compiled(M model) {
  model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}});
  return model;
}

// By a function that returns it.
Model functional() {
  const KerasTensor x = Input({2});
  return Model(x, Dense(1)(Dense(4)(x)));
}

Sequential sequential() { return compiled(Sequential({Dense(4), Dense(1)})); }
Net net() { return compiled(Net()); }

template <class M>
M made();
template <>
Sequential made<Sequential>() {
  return sequential();
}
template <>
Net made<Net>() {
  return net();
}

template <>
Model made<Model>() {
  return compiled(functional());
}

template <class M>
class ModelMoves : public ::testing::Test {
 protected:
  ModelMoves() { set_seed(7); }
};
using Models = ::testing::Types<Sequential, Net, Model>;
TYPED_TEST_SUITE(ModelMoves, Models);

TYPED_TEST(ModelMoves, GoOnTrainingWhereTheyWere) {
  for (const int replicas : {1, 2}) {
    std::vector<Device> devices;
    for (int i = 0; i < replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
    const MirroredStrategy strategy(std::move(devices));
    const auto train = [&](bool moves) {
      set_seed(3);
      const auto scope = strategy.scope();
      TypeParam model = made<TypeParam>();
      model.fit(data(), quiet());
      if (!moves) {
        model.fit(data(), quiet());
        return model.get_weights();
      }
      const auto before = model.trainable_variables();
      TypeParam other = std::move(model);
      EXPECT_EQ(before.data(), other.trainable_variables().data());
      other.fit(data(), quiet());
      EXPECT_EQ(other.optimizer().iterations().value().template item<int64_t>(), 4);
      return other.get_weights();
    };
    const std::vector<Tensor> stayed = train(false), moved = train(true);
    ASSERT_EQ(stayed.size(), moved.size());
    for (std::size_t i = 0; i < stayed.size(); ++i) EXPECT_TRUE(stayed[i].equal(moved[i])) << i;
  }
}

TYPED_TEST(ModelMoves, AreAssignedAndKeptInContainers) {
  TypeParam model = made<TypeParam>();
  model.fit(data(), quiet());
  model = made<TypeParam>();  // another one
  EXPECT_EQ(model.optimizer().iterations().value().template item<int64_t>(), 0);
  EXPECT_EQ(model.fit(data(), quiet()).epoch.size(), 1u);
  std::vector<TypeParam> many;
  for (int i = 0; i < 5; ++i) many.push_back(made<TypeParam>());
  std::optional<TypeParam> one;
  one = std::move(many[2]);
  many.erase(many.begin() + 2);
  for (TypeParam& each : many) EXPECT_EQ(each.fit(data(), quiet()).epoch.size(), 1u);
  one->fit(data(), quiet());
  const std::vector<Tensor> before = one->get_weights();
  EXPECT_EQ(one->fit(data(), quiet()).epoch.size(), 1u);
  EXPECT_FALSE(one->get_weights()[0].equal(before[0]));
  TypeParam& same = *one;
  *one = std::move(same);
  EXPECT_EQ(one->fit(data(), quiet()).epoch.size(), 1u);
}

TYPED_TEST(ModelMoves, LeaveAnErrorBehindAndNoCrash) {
  TypeParam model = made<TypeParam>();
  model.fit(data(), quiet());
  const std::string name = model.name();
  const TypeParam other = std::move(model);
  const Tensor x = ones({4, 2});
  const auto refused = [&](const auto& f) {
    expect_error<FailedPrecondition>({"\"" + name + "\", which was moved to another variable"}, f);
  };
  // NOLINTNEXTLINE(bugprone-use-after-move)
  refused([&] { model.fit(data(), quiet()); });
  refused([&] { model.fit(x, x, quiet()); });
  refused([&] { model.evaluate(data()); });
  refused([&] { model.predict(x); });
  refused([&] { model.train_on_batch(x, x); });
  refused([&] { model.test_on_batch(x, x); });
  refused([&] { model.compile({.loss = "mse"}); });
  refused([&] { model.reset_metrics(); });
  refused([&] { model(x); });
  refused([&] { model.layers(); });
  refused([&] { model.variables(); });
  refused([&] { model.trainable_variables(); });
  refused([&] { model.count_params(); });
  refused([&] { model.summary_text(); });
  refused([&] { model.optimizer(); });
  refused([&] { model.metrics(); });
  refused([&] { model.get_weights(); });
  refused([&] { model.set_weights({}); });
  refused([&] { model.save_weights("w.safetensors"); });
  refused([&] { model.load_weights("w.safetensors"); });
  refused([&] { model.set_trainable(false); });
  refused([&] { model.ensure_built({kUnknownDim, 2}); });
  refused([&] { Checkpoint({{"model", model}}); });
  refused([&] { const TypeParam again = std::move(model); });
  EXPECT_FALSE(model.compiled());
  EXPECT_EQ(model.name(), name);
  model = made<TypeParam>();  // and it can be used again
  EXPECT_EQ(model.fit(data(), quiet()).epoch.size(), 1u);
}

class MovedModels : public cohort::testing::FolderTest {};

TEST_F(MovedModels, TakeTheirCheckpointsAlong) {
  const auto expect_same = [](const Model& a, const Model& b) {
    const auto x = a.get_weights(), y = b.get_weights();
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(x[i].equal(y[i])) << i;
  };
  Net model = net();
  const Checkpoint checkpoint({{"model", model}});
  model.fit(data(), quiet());
  Net other = std::move(model);
  other.fit(data(), quiet());
  checkpoint.save(path("x"));

  Net fresh = net();
  const Checkpoint restored({{"model", fresh}});
  const RestoreStatus status = restored.restore(path("x"));  // waits for the weights
  Net later = std::move(fresh);
  later(ones({1, 2}));
  expect_same(later, other);
  fresh = net();
  EXPECT_THROW(Checkpoint({{"model", Net()}}).save(path("y")), FailedPrecondition);
  const Checkpoint of_the_old({{"model", later}});
  later = net();  // ends the one that was there
  expect_error<FailedPrecondition>({"was destroyed", "keep what a checkpoint tracks alive"},
                                   [&] { of_the_old.save(path("y")); });
}

struct Watcher : CallbackBase {
  using CallbackBase::model;
  std::function<void()> at_end = [] {};
  void on_epoch_end(int, Logs&) override { at_end(); }
};

TEST(MovedModel, IsWhatItsCallbacksSee) {
  const auto watcher = std::make_shared<Watcher>();
  {
    Sequential model = sequential();
    model.fit(data(), {.callbacks = {watcher}, .verbose = Verbose::kSilent});
    EXPECT_EQ(&watcher->model(), &model);
    Sequential other = std::move(model);
    EXPECT_EQ(&watcher->model(), &other);
  }
  expect_error<FailedPrecondition>({"a model that has ended"}, [&] { watcher->model(); });
}

TEST(MovedModel, IsAtRest) {
  Sequential model = sequential();
  const auto watcher = std::make_shared<Watcher>();
  watcher->at_end = [&] { model = sequential(); };
  const FitOptions options = {.callbacks = {watcher}, .verbose = Verbose::kSilent};
  expect_error<FailedPrecondition>({"[move]", "\"" + model.name() + "\" to be at rest"},
                                   [&] { model.fit(data(), options); });
  watcher->at_end = [&] { const Sequential other = std::move(model); };
  EXPECT_THROW(model.fit(data(), options), FailedPrecondition);
  EXPECT_EQ(model.fit(data(), quiet()).epoch.size(), 1u);
}

// An inner model takes the place of the outer one that has it, of which nothing else is left.
TEST(MovedModel, MayBePartOfTheOneThatIsAssigned) {
  const Tensor x = ones({2, 2});
  Sequential outer({std::make_shared<Sequential>(std::vector<Layer>{Dense(3)}), Dense(1)});
  EXPECT_EQ(outer(x).size(1), 1);
  auto& inner = static_cast<Sequential&>(outer.layers()[0].base());
  const Tensor expected = inner(x);
  outer = std::move(inner);
  EXPECT_TRUE(outer(x).equal(expected));
  EXPECT_EQ(outer.layers().size(), 1u);

  Net net;
  net.ensure_built({kUnknownDim, 2});
  struct Holder : Net {
    std::shared_ptr<Net> part = std::make_shared<Net>();
    Holder() { track(part); }
  } holder;
  static_cast<Net&>(holder) = std::move(*holder.part);
  EXPECT_EQ(holder(x).size(1), 1);
}

TEST(MovedModel, IsNotMovedIntoAPartOfIt) {
  Sequential outer({std::make_shared<Sequential>(std::vector<Layer>{Dense(3)})});
  auto& inner = static_cast<Sequential&>(outer.layers()[0].base());
  expect_error<FailedPrecondition>({outer.name(), inner.name(), "does not hold"},
                                   [&] { inner = std::move(outer); });
  EXPECT_EQ(outer(ones({2, 2})).size(1), 3) << "nothing has moved";
}

TEST(MovedModel, KeepsThePenaltiesOfItsOwnWeights) {
  Net model = net();
  model(ones({1, 2}));
  EXPECT_NEAR(model.regularization_loss().item<double>(), 0.5, 1e-6);
  const Net other = std::move(model);
  EXPECT_NEAR(other.regularization_loss().item<double>(), 0.5, 1e-6);
}

TEST(MovedModel, IsOfTheStrategyOfTheOneThatIsAssigned) {
  Sequential model;
  const MirroredStrategy two(std::vector<Device>{"CPU:0", "CPU:1"});
  const auto scope = two.scope();
  expect_error<FailedPrecondition>({two.extended().description() + " (2 replicas)"},
                                   [&] { model.fit(data(), quiet()); });
  model = sequential();
  model.fit(data(), quiet());
  EXPECT_EQ(model.variables()[0].components().size(), 2u);
}

}  // namespace
}  // namespace cohort::keras
