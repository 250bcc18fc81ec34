// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/torch_module.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <filesystem>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/component.h"
#include "cohort/variables/gradient_lease.h"

namespace cohort::keras {
namespace {

namespace nn = torch::nn;
constexpr int64_t kRows = 12;

// What a user has: LibTorch code that knows of no strategy.
struct Mlp : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(6, 8));
  nn::Linear b = register_module("b", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) { return b(torch::tanh(a(x))); }
};

struct ConvNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
  nn::Linear out = register_module("out", nn::Linear(64, 3));
  Tensor forward(const Tensor& x) {
    return out(torch::relu(norm(conv(x))).reshape({x.size(0), 64}));
  }
};

struct CloneableNet : nn::Cloneable<CloneableNet> {
  CloneableNet() { reset(); }
  void reset() override { a = register_module("a", nn::Linear(6, 3)); }
  Tensor forward(const Tensor& x) { return a(x); }
  nn::Linear a = nullptr;
};

struct NoForward : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(6, 3));
  Tensor forward(const Tensor& x, const Tensor& y) { return a(x) + y; }
};
static_assert(TorchForward<Mlp> && TorchForward<nn::SequentialImpl> && !TorchForward<NoForward> &&
              !TorchForward<nn::Module>);
static_assert(internal::TorchSource<std::shared_ptr<Mlp>> && internal::TorchSource<nn::Linear> &&
              internal::TorchSource<nn::Sequential> && !internal::TorchSource<int>);

template <class M>
std::shared_ptr<M> make_module() {
  torch::manual_seed(7);
  return std::make_shared<M>();
}

Tensor inputs(const Shape& shape = {kRows, 6}) {
  torch::manual_seed(1);
  return torch::randn(shape);
}
Tensor targets() {
  torch::manual_seed(2);
  return torch::randn({kRows, 3});
}

Strategy strategy_of(const std::string& name) {
  if (name == "OneDevice") return OneDeviceStrategy("CPU:0");
  if (name == "Mirrored2") return MirroredStrategy({"CPU:0", "CPU:1"});
  if (name == "Mirrored3") return MirroredStrategy({"CPU:0", "CPU:1", "CPU:2"});
  if (name == "Central2") {
    return CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}});
  }
  return get_strategy();
}

// This replica's rows of a batch.
Tensor share(const Tensor& batch) {
  const auto ctx = get_replica_context();
  return batch.chunk(ctx.num_replicas_in_sync())[ctx.replica_id_in_sync_group()];
}

double largest_difference(const nn::Module& a, const nn::Module& b) {
  const torch::NoGradGuard no_grad;
  const auto pa = a.parameters(), pb = b.parameters();
  double worst = pa.size() == pb.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < pa.size() && i < pb.size(); ++i) {
    worst = std::max(worst, (pa[i] - pb[i]).abs().max().item<double>());
  }
  return worst;
}

template <class M>
void expect_equal_copies(const DistributedModule<M>& model) {
  std::vector<M*> modules;
  model.for_each([&](M& module) { modules.push_back(&module); });
  for (M* module : modules) EXPECT_EQ(largest_difference(*modules[0], *module), 0);
}

// `steps` of plain LibTorch on the whole batch.
template <class O, class M, class... A>
std::shared_ptr<M> trained_by_libtorch(const Tensor& x, int steps, const A&... options) {
  auto module = make_module<M>();
  std::vector<Tensor> parameters;  // each once: LibTorch lists shared ones twice, and steps twice
  for (const Tensor& p : module->parameters()) {
    if (std::ranges::none_of(parameters, [&](const Tensor& q) { return q.is_same(p); })) {
      parameters.push_back(p);
    }
  }
  O optimizer(parameters, options...);
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    torch::mse_loss(module->forward(x), targets()).backward();
    optimizer.step();
  }
  return module;
}

std::string names_of(const LayerBase& layer) {
  std::string names;
  for (const Variable& v : layer.variables()) names += v.name() + " ";
  return names;
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class TorchModules : public ::testing::TestWithParam<const char*> {
 protected:
  const Strategy strategy = strategy_of(GetParam());
  const Scope scope = strategy.scope();
  const int replicas = strategy.num_replicas_in_sync();
};
INSTANTIATE_TEST_SUITE_P(Strategies, TorchModules,
                         ::testing::Values("Default", "OneDevice", "Mirrored2", "Mirrored3",
                                           "Central2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(TorchModules, TrainByTapeAsPlainLibTorchOnTheWholeBatch) {
  const DistributedModule model(make_module<Mlp>);
  const SGD optimizer({.learning_rate = 0.1});
  const Tensor x = inputs(), y = targets();
  for (int i = 0; i < 5; ++i) {
    strategy.run([&] {
      GradientTape tape;
      const Tensor rows =
          torch::mse_loss(model->forward(share(x)), share(y), at::Reduction::None).mean(1);
      const Tensor loss = compute_average_loss(rows, {.global_batch_size = kRows});
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
    });
  }
  const auto plain =
      trained_by_libtorch<torch::optim::SGD, Mlp>(x, 5, torch::optim::SGDOptions(0.1));
  EXPECT_LT(largest_difference(*plain, model.local()), 1e-6);
  expect_equal_copies(model);
}

TEST_P(TorchModules, TrainByTorchOptimAsPlainLibTorchOnTheWholeBatch) {
  const DistributedModule model(make_module<Mlp>);
  DistributedOptimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  const Tensor x = inputs(), y = targets();
  for (int i = 0; i < 5; ++i) {
    strategy.run([&] {
      const torch::AutoGradMode record(true);
      optimizer.zero_grad();
      const Tensor loss = torch::mse_loss(model->forward(share(x)), share(y));
      loss.backward();
      optimizer.step();
    });
  }
  const auto plain =
      trained_by_libtorch<torch::optim::Adam, Mlp>(x, 5, torch::optim::AdamOptions(0.01));
  EXPECT_LT(largest_difference(*plain, model.local()), 1e-6);
  expect_equal_copies(model);
}

TEST_P(TorchModules, TrainByBackwardAndAKerasOptimizer) {
  const DistributedModule model(make_module<Mlp>);
  const SGD optimizer({.learning_rate = 0.1});
  const Tensor x = inputs(), y = targets();
  for (int i = 0; i < 5; ++i) {
    strategy.run([&] {
      const torch::AutoGradMode record(true);
      model->zero_grad(/*set_to_none=*/i % 2 == 0);
      const Tensor loss = torch::mse_loss(model->forward(share(x)), share(y)) / replicas;
      loss.backward({}, /*retain_graph=*/false, /*create_graph=*/i == 3);
      optimizer.apply_gradients(gradients_of(model.trainable_variables()));
      if (i == 3) model->zero_grad();  // the graph would keep itself alive
    });
  }
  const auto plain =
      trained_by_libtorch<torch::optim::SGD, Mlp>(x, 5, torch::optim::SGDOptions(0.1));
  EXPECT_LT(largest_difference(*plain, model.local()), 1e-6);
}

TEST_P(TorchModules, KeepStatisticsPerReplicaAndAggregateThemWhenRead) {
  const DistributedModule model(make_module<ConvNet>, "net");
  const SGD optimizer({.learning_rate = 0.1});
  const Tensor x = inputs({kRows, 1, 4, 4}), y = targets();
  strategy.run([&] {
    model->train();
    GradientTape tape;
    const Tensor loss = torch::mse_loss(model->forward(share(x)), share(y)) / replicas;
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
  });
  expect_equal_copies(model);
  std::vector<Tensor> means, counts;
  model.for_each([&](ConvNet& net) {
    means.push_back(net.norm->running_mean);
    counts.push_back(net.norm->num_batches_tracked);
  });
  if (replicas > 1) {
    EXPECT_FALSE(torch::equal(means[0], means[1]));
  }
  for (const Variable& v : model.variables()) {
    if (v.name() == "net/norm.running_mean") {
      EXPECT_TRUE(torch::allclose(v.value(), torch::stack(means).mean(0), 1e-6, 1e-7));
      EXPECT_EQ(v.synchronization(), Synchronization::kOnRead);
    }
    if (v.name() == "net/norm.num_batches_tracked") {
      EXPECT_EQ(v.value().item<int64_t>(), 1);
    }
  }
  EXPECT_EQ(counts.back().item<int64_t>(), 1);
}

TEST_P(TorchModules, KeepTheStatisticsOfWholeStepsWhenALaterOneFails) {
  const DistributedModule model(make_module<ConvNet>);
  DistributedOptimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
  const auto step = [&](bool fails) {
    model(share(inputs({kRows, 1, 4, 4})), {.training = true}).sum().backward();
    if (fails) throw InvalidArgument("on purpose");
    optimizer.step();
  };
  EXPECT_THROW(strategy.run([&] { step(false), step(false), step(true); }), InvalidArgument);
  model.for_each([](ConvNet& n) { EXPECT_EQ(n.norm->num_batches_tracked.item<int>(), 2); });
}

TEST_P(TorchModules, FitInsideASequentialAndMoveBetweenStrategiesByFile) {
  const auto build = [] {
    return std::make_shared<Sequential>(std::vector<Layer>{
        TorchModule(make_module<ConvNet>), TorchModule(nn::Sequential(nn::Linear(3, 4)), "tail")});
  };
  const Tensor x = inputs({kRows, 1, 4, 4});
  const Tensor y = torch::arange(kRows).remainder(4);
  const auto model = build();
  model->compile({.optimizer = Adam({.learning_rate = 0.05}),
                  .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = {"accuracy"}});
  // 12 rows in batches of 5: the last batch leaves replicas of three without a row.
  const History history = model->fit(
      x, y, {.epochs = 30, .batch_size = 5, .verbose = Verbose::kSilent, .shuffle = false});
  EXPECT_LT(history.history.at("loss").back(), 0.5 * history.history.at("loss").front());
  const std::string file =
      str_cat((std::filesystem::temp_directory_path() / "torch_module_").string(), getpid(), "_",
              GetParam(), ".safetensors");
  model->save_weights(file);
  const PredictOptions silent{.verbose = Verbose::kSilent};
  const Tensor expected = model->predict(x, silent);
  const auto other = build();
  other->predict(x, silent);  // builds
  other->load_weights(file);
  std::filesystem::remove(file);
  if (replicas == 1) {
    EXPECT_TRUE(torch::equal(other->predict(x, silent), expected));
  }
  expect_text(names_of(*model), "torch_module/norm.num_batches_tracked");
  expect_text(names_of(*model), "tail/0.weight");
}

TEST_P(TorchModules, WriteGradientsIntoTheArena) {
  const DistributedModule model(make_module<Mlp>);
  const Tensor x = inputs();
  strategy.run([&] {
    GradientTape tape({.persistent = true});
    // Used twice in one pass.
    const Tensor one = model->forward(x).sum() + model->forward(x * 2).sum();
    const Tensor two = model->forward(x * 3).sum();
    const Gradients a = tape.gradient(one, model.trainable_variables());
    const Gradients b = tape.gradient(two, model.trainable_variables());
    auto parameters = model->parameters();
    const auto expected_a = torch::autograd::grad({one}, parameters, {}, true);
    const auto expected_b = torch::autograd::grad({two}, parameters, {}, true);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(torch::allclose(a[i].gradient.dense(), expected_a[i], 1e-5, 1e-6));
      EXPECT_TRUE(torch::allclose(b[i].gradient.dense(), expected_b[i], 1e-5, 1e-6));
      const cohort::internal::variables::Component& component =
          cohort::internal::variables::local_impl(a[i].variable.impl()).leaf();
      EXPECT_NE(component.buffer_of(a[i].gradient.dense()), nullptr);
      EXPECT_FALSE(parameters[i].grad().defined());
    }
  });
}

TEST_P(TorchModules, HaveSecondDerivatives) {
  const DistributedModule model(make_module<Mlp>);
  const Tensor x = inputs(), y = targets();
  const auto penalty = [&](const auto& first) {
    Tensor sum = torch::zeros({});
    for (const Tensor& g : first) sum = sum + g.square().sum();
    return sum;
  };
  strategy.run([&] {
    GradientTape outer;
    std::vector<Tensor> first;
    {
      GradientTape inner;
      const Tensor loss = torch::mse_loss(model->forward(x), y);
      for (auto& pair : inner.gradient(loss, model.trainable_variables())) {
        first.push_back(pair.gradient.dense());
      }
    }
    const Gradients got = outer.gradient(penalty(first), model.trainable_variables());
    const torch::AutoGradMode record(true);
    const auto loss = torch::mse_loss(model->forward(x), y);
    const auto once = torch::autograd::grad({loss}, model->parameters(), {}, true, true);
    const auto twice = torch::autograd::grad({penalty(once)}, model->parameters(), {}, {}, false,
                                             /*allow_unused=*/true);
    for (std::size_t i = 0; i < twice.size(); ++i) {
      if (!twice[i].defined()) continue;
      EXPECT_TRUE(torch::allclose(got[i].gradient.dense(), twice[i], 1e-4, 1e-6));
    }
  });
}

// A head that trains on a frozen body, a part that is not used, and one that is used twice.
struct Parts : nn::Module {
  Parts() {
    for (Tensor& p : body->parameters()) p.set_requires_grad(false);
    register_module("again", tied);
  }
  nn::Linear body = register_module("body", nn::Linear(6, 6));
  nn::Linear tied = register_module("tied", nn::Linear(6, 6));
  nn::Linear spare = register_module("spare", nn::Linear(2, 2));
  nn::Linear head = register_module("head", nn::Linear(nn::LinearOptions(6, 3).bias(false)));
  Tensor forward(const Tensor& x) { return head(tied(torch::relu(tied(body(x))))); }
};

TEST_P(TorchModules, LeaveFrozenAndUnusedParametersAlone) {
  const DistributedModule model(make_module<Parts>, "parts");
  EXPECT_EQ(names_of(model.base()),
            "parts/body.weight parts/body.bias parts/tied.weight parts/tied.bias "
            "parts/spare.weight parts/spare.bias parts/head.weight ");
  EXPECT_EQ(model.trainable_variables().size(), 5U);
  EXPECT_FALSE(model.variables()[0].trainable());
  const SGD optimizer({.learning_rate = 0.1});
  const Tensor x = inputs(), y = targets();
  strategy.run([&] {
    GradientTape tape;
    const Tensor loss = torch::mse_loss(model->forward(share(x)), share(y)) / replicas;
    const Gradients g = tape.gradient(loss, model.trainable_variables());
    EXPECT_TRUE(g[0].gradient.has_value());
    EXPECT_FALSE(g[2].gradient.has_value());
    optimizer.apply_gradients(g);
  });
  const auto plain =
      trained_by_libtorch<torch::optim::SGD, Parts>(x, 1, torch::optim::SGDOptions(0.1));
  EXPECT_LT(largest_difference(*plain, model.local()), 1e-6);
  EXPECT_TRUE(torch::equal(make_module<Parts>()->body->weight, model.local().body->weight));
  EXPECT_TRUE(torch::equal(make_module<Parts>()->spare->weight, model.local().spare->weight));
  expect_equal_copies(model);
}

TEST_P(TorchModules, TakeAGivenModuleAndTrainIt) {
  const auto given = make_module<CloneableNet>();
  const Tensor before = given->a->weight.detach().clone();
  const DistributedModule model(given);
  EXPECT_EQ(&model.local(), given.get());
  EXPECT_TRUE(torch::equal(given->a->weight, before));
  model.trainable_variables()[0].assign(torch::ones({3, 6}));
  EXPECT_TRUE(torch::equal(given->a->weight, torch::ones({3, 6})));
  strategy.run([&] { EXPECT_TRUE(torch::equal(model->a->weight, torch::ones({3, 6}))); });
}

TEST_P(TorchModules, RunInTheModeOfTheCall) {
  const DistributedModule model(make_module<ConvNet>);
  const Tensor x = inputs({kRows, 1, 4, 4});
  strategy.run([&] {
    model(share(x), {.training = true});
    EXPECT_TRUE(model->norm->is_training());
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 1);
    model(share(x));
    EXPECT_FALSE(model->norm->is_training());
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 1);
    // No example: no statistics, and gradients that are zero rather than none.
    GradientTape tape;
    const Tensor none = model(x.narrow(0, 0, 0), {.training = true});
    EXPECT_EQ(shape_of(none), (Shape{0, 3}));
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 1);
    for (const auto& pair : tape.gradient(none.sum(), model.trainable_variables())) {
      EXPECT_EQ(pair.gradient.dense().abs().sum().item<float>(), 0);
    }
    // Also those of what comes before it.
    const Tensor empty = torch::zeros({0, 1, 4, 4}, torch::requires_grad());
    GradientTape again;
    EXPECT_TRUE(again.gradient(model(empty).sum(), empty).defined());
  });
}

TEST_P(TorchModules, NoticeParametersThatWereGivenOtherMemory) {
  const DistributedModule model(make_module<Mlp>, "net");
  model.local().to(kFloat64);
  const std::string text =
      testing::error_text([&] { strategy.run([&] { model->forward(inputs()); }); });
  expect_text(text, "[net] expected parameter \"a.weight\"");
  expect_text(text, "do that before the layer is built, or assign to its variables");
}

TEST_P(TorchModules, HaveToHaveForwardWhereTheyAreCalledAsLayers) {
  const DistributedModule model(make_module<NoForward>);
  const std::string text = testing::error_text([&] { strategy.run([&] { model(inputs()); }); });
  expect_text(text,
              "expected a module with forward(Tensor) that returns a Tensor, got one without");
  strategy.run([&] { EXPECT_EQ(model->forward(inputs(), targets()).size(0), kRows); });
}

class TwoTorchModules : public ::testing::Test {
 protected:
  const Strategy strategy = strategy_of("Mirrored2");
};

TEST_F(TwoTorchModules, HaveToBeAlike) {
  const Scope scope = strategy.scope();
  int64_t width = 3;
  const auto growing = [&width] { return nn::Linear(6, width++); };
  expect_text(testing::error_text([&] { DistributedModule model(growing, "net"); }),
              "[net] expected modules with the same parameters and buffers on every replica, got "
              "parameter \"weight\" float32[3, 6] on replica 0 and parameter \"weight\" "
              "float32[4, 6] on replica 1");
  const auto one = make_module<Mlp>();
  expect_text(testing::error_text([&] { DistributedModule model([&] { return one; }); }),
              "build a new module in the function");
  expect_text(testing::error_text([&] { DistributedModule model(one); }),
              "expected a module that can be cloned for each replica");
  expect_text(testing::error_text([&] { DistributedModule model(one); }),
              "Give a function that builds the module instead");
  expect_text(testing::error_text([&] { DistributedModule model(nn::Linear(nullptr)); }),
              "expected a module, got a null pointer");
  EXPECT_THROW(TorchModule(std::function<std::shared_ptr<Mlp>()>()), InvalidArgument);
}

TEST_F(TwoTorchModules, BelongToTheScopeTheyWereMadeIn) {
  const DistributedModule outside(make_module<Mlp>);
  expect_text(
      testing::error_text([&] { strategy.run([&] { outside->forward(inputs()); }); }),
      "expected a module made under the scope of this strategy (2 replicas), got one for 1");
}

TEST_F(TwoTorchModules, WithBuffersRunInReplicas) {
  const Scope scope = strategy.scope();
  const DistributedModule net(make_module<ConvNet>);
  const DistributedModule mlp(make_module<Mlp>);
  expect_text(testing::error_text([&] {
                net(inputs({kRows, 1, 4, 4}));
              }),
              "expected to be inside strategy.run");
  EXPECT_EQ(mlp(inputs()).size(0), kRows);
  expect_text(testing::error_text([&] { mlp(inputs(), {.training = true}); }), "that trains");
  expect_text(testing::error_text([&] {
                strategy.run([&] {
                  DistributedOptimizer<torch::optim::SGD> o(mlp, torch::optim::SGDOptions(0.1));
                });
              }),
              "expected cross-replica context");
}

TEST_F(TwoTorchModules, TellTheShapeOfTheirOutput) {
  const Scope scope = strategy.scope();
  const DistributedModule net(make_module<ConvNet>);
  EXPECT_EQ(net.base().compute_output_shape({kUnknownDim, 1, 4, 4}), (Shape{kUnknownDim, 3}));
  EXPECT_TRUE(net.local().is_training());
  const DistributedModule table([] { return nn::Embedding(5, 3); });
  EXPECT_EQ(table.base().compute_output_shape({kUnknownDim, 4}), (Shape{kUnknownDim, 4, 3}));
  expect_text(testing::error_text([&] {
                net.base().compute_output_shape({kUnknownDim, 1, 5, 5});
              }),
              "expected inputs that the module can take, got [-1, 1, 5, 5]");
}

}  // namespace
}  // namespace cohort::keras
