// SPDX-License-Identifier: Apache-2.0
//
// A strategy whose parameters are kept elsewhere: a map of names, as a server has them. Gradients
// are pushed there, rows of tables as rows, and what became of the parameters is pulled.
#include "cohort/variables/parameter_store.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_word_means.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/local_strategy_extended.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/row_sum.h"
#include "cohort/variables/updater.h"

namespace cohort::keras {
namespace {

using cohort::internal::variables::Leaf;
using cohort::internal::variables::LocalVariables;
using cohort::internal::variables::ParameterStore;
using cohort::internal::variables::RowSum;
using cohort::internal::variables::Updater;
using cohort::internal::variables::UpdaterOptions;
using cohort::internal::variables::VariableImpl;
using cohort::internal::variables::Write;
using cohort::testing::WordMeans;
using update_rules::Rule;

/// What a server would have: it knows names and numbers.
struct Server {
  struct Entry {
    Tensor value;
    std::vector<Tensor> slots;
  };
  std::map<std::string, Entry> entries;
  int64_t pushed = 0;  // numbers that came as gradients

  static std::span<float> span_of(const Tensor& t) {
    return {t.mutable_data_ptr<float>(), static_cast<std::size_t>(t.numel())};
  }
  static update_rules::Target<float> target(const Entry& entry) {
    update_rules::Target<float> out{.param = span_of(entry.value).data(), .slots = {}};
    for (std::size_t s = 0; s < entry.slots.size(); ++s) {
      out.slots[s] = span_of(entry.slots[s]).data();
    }
    return out;
  }
  void push(const std::string& name, const Tensor& gradient, const Rule& rule) {
    pushed += gradient.numel();
    const Tensor g = gradient.contiguous();
    const float* const sources[] = {g.const_data_ptr<float>()};
    update_rules::fused_update<float>(rule, target(entries.at(name)), sources, 0,
                                      static_cast<std::size_t>(g.numel()));
  }
  void push_rows(const std::string& name, const RowSum& sum, const Rule& rule) {
    pushed += sum.values.numel();
    update_rules::fused_update_rows<float>(
        rule, target(entries.at(name)), sum.values.const_data_ptr<float>(), sum.rows, sum.width());
  }
};

class MapVariable final : public VariableImpl {
 public:
  MapVariable(Description description, ParameterStore& store, Server& server)
      : VariableImpl(std::move(description)), server_(server) {
    store_ = &store;
    leaf_.tensor = on_server().clone().set_requires_grad(true);
  }
  Tensor value() const override { return leaf_.tensor; }
  using VariableImpl::write;
  Tensor write(Write kind, const Tensor& x) override {
    check_value("[map.write] ", x);
    EXPECT_EQ(kind, Write::kAssign);
    on_server().copy_(x);
    pull();
    return value();
  }
  Leaf& leaf() override { return leaf_; }
  void pull() {
    const at::NoGradGuard no_grad;
    leaf_.tensor.copy_(on_server());
  }

 private:
  const Tensor& on_server() const { return server_.entries.at(description_.name).value; }
  Server& server_;
  Leaf leaf_;
};

class PushingUpdater final : public Updater {
 public:
  PushingUpdater(std::vector<Variable> variables, const UpdaterOptions& options, Server& server)
      : variables_(std::move(variables)), options_(options), server_(server) {
    for (const Variable& v : variables_) {
      for (const double initial : options.slot_initial) {
        server_.entries.at(v.name()).slots.push_back(full(v.shape(), initial));
      }
    }
  }
  void apply(const Gradients& gradients, const Rule& rule, double) override {
    for (const GradientAndVariable& pair : gradients) {
      if (!pair.gradient.has_value()) continue;
      const std::string& name = pair.variable.name();
      if (pair.gradient.is_sparse() && options_.lazy_rows) {
        server_.push_rows(
            name, cohort::internal::variables::sum_rows(pair.gradient.slices(), kFloat32), rule);
      } else {
        server_.push(name, pair.gradient.as_tensor(), rule);
      }
      static_cast<MapVariable&>(pair.variable.impl()).pull();
    }
  }
  void apply_own(const Gradients& gradients, const Rule& rule, double weight_decay) override {
    apply(gradients, rule, weight_decay);
  }
  const std::vector<Variable>& variables() const override { return variables_; }
  int slot_count() const override { return static_cast<int>(options_.slot_initial.size()); }
  Tensor slot(std::size_t variable, int slot) const override {
    return place(variable, slot).clone();
  }
  void set_slot(std::size_t variable, int slot, const Tensor& value) override {
    place(variable, slot).copy_(value);
  }

 private:
  const Tensor& place(std::size_t variable, int slot) const {
    return server_.entries.at(variables_[variable].name()).slots[static_cast<std::size_t>(slot)];
  }
  const std::vector<Variable> variables_;
  const UpdaterOptions options_;
  Server& server_;
};

/// Trainable variables on the server, all others as in one process.
class MapStore final : public ParameterStore {
 public:
  std::shared_ptr<VariableImpl> create(const InitialValue& initial,
                                       const VariableOptions& options) override {
    if (!options.trainable.value_or(true)) return local_->create(initial, options);
    const Tensor value = initial.make(options.shape, options.dtype).clone();
    server.entries[options.name] = {value, {}};
    VariableImpl::Description description;
    description.name = options.name;
    description.shape = shape_of(value);
    description.dtype = value.scalar_type();
    description.aggregation = options.aggregation;
    description.devices = {Device("CPU:0")};
    return std::make_shared<MapVariable>(std::move(description), *this, server);
  }
  std::shared_ptr<Updater> make_updater(std::vector<Variable> variables,
                                        UpdaterOptions options) override {
    ++updaters;
    return std::make_shared<PushingUpdater>(std::move(variables), options, server);
  }
  std::string owner() const override { return "the map"; }

  Server server;
  int updaters = 0;

 private:
  const std::shared_ptr<LocalVariables> local_ = std::make_shared<LocalVariables>();
};

class MapStrategy final : public LocalStrategyExtended {
 public:
  MapStrategy() : LocalStrategyExtended({.name = "MapStrategy", .devices = {Device("CPU:0")}}) {}
  const std::shared_ptr<MapStore> map = std::make_shared<MapStore>();

 protected:
  const std::shared_ptr<ParameterStore>& do_parameter_store() override { return store_; }

 private:
  const std::shared_ptr<ParameterStore> store_ = map;
};

struct Outcome {
  std::vector<std::vector<float>> weights, state;
  double loss = 0;
};

Outcome train(const Strategy& strategy, const Optimizer& optimizer) {
  set_seed(3);
  clear_session();
  auto scope = strategy.scope();
  Sequential model({std::make_shared<WordMeans>(), Dense(6, {.activation = "tanh"}), Dense(1)});
  model.compile({.optimizer = optimizer, .loss = MeanSquaredError()});
  const Tensor x = (arange(96) * 7).remainder(50).reshape({32, 3});
  const Tensor y = (arange(32).to(kFloat32) * 0.4).sin().reshape({32, 1});
  const History history = model.fit(Dataset::from_tensor_slices({x, y}).batch(8),
                                    {.epochs = 3, .verbose = Verbose::kSilent});
  Outcome out;
  for (const Variable& v : model.trainable_variables()) {
    out.weights.push_back(to_vector<float>(v.value()));
  }
  for (const Variable& v : optimizer.variables()) {
    out.state.push_back(to_vector<float>(v.value().to(kFloat32)));
  }
  out.loss = history["loss"].back();
  return out;
}

TEST(ParameterStore, OfAnotherKindTrainsAModelToTheSameNumbers) {
  for (const bool lazy : {false, true}) {
    const auto make = [&] { return Adam({.learning_rate = 0.05, .lazy_rows = lazy}); };
    const auto extended = std::make_shared<MapStrategy>();
    const Outcome elsewhere = train(Strategy(extended), make());
    const Outcome here = train(OneDeviceStrategy("CPU:0"), make());
    EXPECT_EQ(elsewhere.weights, here.weights);
    EXPECT_EQ(elsewhere.state, here.state);
    EXPECT_EQ(elsewhere.loss, here.loss);
    EXPECT_EQ(extended->map->updaters, 1);
    // 12 steps: 37 dense weights each, and 50 rows, or those of the batch, which are at most 24.
    const int64_t rows = (extended->map->server.pushed - 12 * 37) / 4;
    EXPECT_GT(rows, 0);
    if (lazy) {
      EXPECT_LE(rows, 12 * 24);
    } else {
      EXPECT_EQ(rows, 12 * 50);
    }
  }
}

TEST(ParameterStore, UpdatesItsOwnVariablesOnly) {
  const auto extended = std::make_shared<MapStrategy>();
  const Strategy strategy(extended);
  auto scope = strategy.scope();
  const Variable there(ones({2}), {.name = "there"});
  EXPECT_EQ(to_vector<float>(there.assign(tensor({3, 4}))), (std::vector<float>{3, 4}));
  EXPECT_EQ(to_vector<float>(there.assign(5.0)), (std::vector<float>{5, 5}));
  EXPECT_EQ(to_vector<float>(extended->map->server.entries.at("there").value),
            (std::vector<float>{5, 5}));
  cohort::testing::expect_error<InvalidArgument>({"\"there\"", "the map"}, [&] {
    LocalVariables::default_instance()->make_updater({there}, {});
  });
}

/// Makes every value in two parts, the second one first.
class HalvingCreator final : public cohort::internal::variables::VariableCreator {
 public:
  std::shared_ptr<VariableImpl> create(const InitialValue& initial,
                                       const VariableOptions& options) override {
    const Shape whole = *options.shape;
    Shape half = whole;
    half[0] /= 2;
    const PartitionInfo first{whole, Shape(whole.size())};
    PartitionInfo second = first;
    second.offset[0] = half[0];
    const Tensor end = initial.make_part(half, second, options.dtype);
    const Tensor both[] = {initial.make_part(half, first, options.dtype), end};
    return LocalVariables::default_instance()->create(concat(both), options);
  }
};

// A layer's weights are as wide as the whole says, whose inputs and outputs count.
TEST(ParameterStore, PartsAreInitializedAsTheWhole) {
  const cohort::internal::variables::VariableCreatorScope scope(std::make_shared<HalvingCreator>());
  Sequential model({Dense(2)});
  model.build({kUnknownDim, 1000});
  const Tensor kernel = model.trainable_variables()[0].value();
  const double widest = std::sqrt(6.0 / 1002);
  EXPECT_LE(kernel.abs().max().item<double>(), widest);
  EXPECT_GT(kernel.slice(0, 0, 500).abs().max().item<double>(), 0.9 * widest);
  EXPECT_GT(kernel.slice(0, 500, 1000).abs().max().item<double>(), 0.9 * widest);
}

}  // namespace
}  // namespace cohort::keras
