// SPDX-License-Identifier: Apache-2.0
//
// Every handle class (those that need a cluster or a signal: beside their own tests), empty or
// moved from: a use is FailedPrecondition that names the class and says what to do, and never a
// crash.
#include <gtest/gtest.h>

#include <functional>
#include <type_traits>

#include "cohort/cohort.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort {
namespace {

/// A use of an empty handle, and how the error's text begins.
struct Case {
  std::string name;
  std::string tag;
  std::function<void()> use;
};

/// What is left of `handle` when it has gone elsewhere.
template <class T>
std::shared_ptr<T> gone(T handle) {
  auto kept = std::make_shared<T>(std::move(handle));
  [[maybe_unused]] const T elsewhere = std::move(*kept);
  return kept;
}

struct Doubled : keras::LayerBase {
  Tensor call(const Tensor& x, const keras::CallArgs&) override { return x * 2.0; }
  std::string class_name() const override { return "Doubled"; }
};

void add_strategies(std::vector<Case>& cases) {
  const auto s = gone<Strategy>(OneDeviceStrategy("CPU:0"));
  const auto add = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"Strategy." + operation, "[strategy." + operation + "]", std::move(use)});
  };
  add("scope", [s] { auto scope = s->scope(); });
  add("num_replicas_in_sync", [s] { s->num_replicas_in_sync(); });
  add("extended", [s] { s->extended(); });
  add("barrier", [s] { s->barrier(); });
  add("run", [s] { s->run([] { return 1; }); });
  add("reduce", [s] { s->reduce("sum", PerReplica<int>({1})); });
  add("reduce", [s] { s->reduce("sum", scalar(1)); });
  add("gather", [s] { s->gather(PerReplica<Tensor>({ones({1})}), 0); });
  add("distribute_dataset", [s] { s->distribute_dataset(Dataset::range(3)); });
  add("distribute_datasets_from_function", [s] {
    s->distribute_datasets_from_function([](const InputContext&) { return Dataset::range(3); });
  });
  add("distribute_values_from_function",
      [s] { s->distribute_values_from_function([](const ValueContext&) { return 1; }); });
  const auto null = std::make_shared<Strategy>(std::shared_ptr<StrategyExtended>());
  add("scope", [null] { auto scope = null->scope(); });
  const auto here = gone(CapturedContext::capture());
  cases.push_back({"CapturedContext.enter", "[captured_context.enter]",
                   [here] { auto guard = here->enter(); }});
}

void add_variables(std::vector<Case>& cases) {
  const auto v = gone(Variable(1.0));
  const auto add = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"Variable." + operation, "[variable." + operation + "]", std::move(use)});
  };
  add("value", [v] { v->value(); });
  add("assign", [v] { v->assign(1.0); });
  add("assign_add", [v] { v->assign_add(scalar(1)); });
  add("scatter_add", [v] { v->scatter_add({}); });
  add("sparse_read", [v] { v->sparse_read(tensor({0}, kInt64)); });
  add("name", [v] { v->name(); });
  add("shape", [v] { v->shape(); });
  add("device", [v] { v->device(); });
  add("components", [v] { v->components(); });
  add("local_tensor", [v] { v->local_tensor(); });
  add("grad", [v] { v->grad(); });
  cases.push_back({"Variable()", "[variable", [] { Variable().trackable(); }});
}

void add_datasets(std::vector<Case>& cases) {
  const auto d = gone(Dataset::range(3).batch(2));
  const auto add = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"Dataset." + operation, "[dataset." + operation + "]", std::move(use)});
  };
  add("map", [d] { d->map([](int64_t x) { return x; }); });
  add("filter", [d] { d->filter([](int64_t) { return true; }); });
  add("take_while", [d] { d->take_while([](int64_t) { return true; }); });
  add("flat_map", [d] { d->flat_map([](int64_t x) { return Dataset::range(x); }); });
  add("interleave", [d] { d->interleave([](int64_t x) { return Dataset::range(x); }); });
  add("batch", [d] { d->batch(2); });
  add("unbatch", [d] { d->unbatch(); });
  add("shuffle", [d] { d->shuffle(2); });
  add("repeat", [d] { d->repeat(); });
  add("take", [d] { d->take(1); });
  add("prefetch", [d] { d->prefetch(); });
  add("cache", [d] { d->cache(); });
  add("concatenate", [d] { d->concatenate(Dataset::range(1)); });
  add("concatenate", [d] { Dataset::range(1).concatenate(*d); });
  add("zip", [d] { Dataset::zip({Dataset::range(1), *d}); });
  add("begin", [d] { d->begin(); });
  add("as", [d] { d->as<int64_t>(); });
  add("make_iterator", [d] { d->make_iterator(); });
  add("element_spec", [d] { d->element_spec(); });
  add("cardinality", [d] { d->cardinality(); });
  const auto it = gone(Dataset::range(3).make_iterator());
  const auto add_iterator = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"Iterator." + operation, "[iterator." + operation + "]", std::move(use)});
  };
  add_iterator("next", [it] { it->next(); });
  add_iterator("save", [it] { it->save(); });
  add_iterator("restore", [it] { it->restore("x"); });
  add_iterator("cancel", [it] { it->cancel(); });
  add_iterator("report", [it] { it->report(); });
  add_iterator("trackable", [it] { it->trackable(); });
  const auto parser = gone(ExampleParser(FeatureSpecs{{"x", FixedLenFeature{}}}));
  cases.push_back({"ExampleParser", "[example_parser", [parser] { parser->single_spec(); }});
}

void add_distributed(std::vector<Case>& cases) {
  const OneDeviceStrategy strategy("CPU:0");
  const DistributedDataset whole = strategy.distribute_dataset(Dataset::range(3).batch(2));
  const auto d = gone(whole);
  const auto add = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"DistributedDataset." + operation, "[distributed_dataset." + operation + "]",
                     std::move(use)});
  };
  add("make_iterator", [d] { d->make_iterator(); });
  add("begin", [d] { d->begin(); });
  add("element_spec", [d] { d->element_spec(); });
  add("cardinality", [d] { d->cardinality(); });
  add("num_replicas", [d] { d->num_replicas(); });
  add("global_batch_size", [d] { d->global_batch_size(); });
  const auto it = gone(whole.make_iterator());
  const auto add_iterator = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"DistributedIterator." + operation, "[distributed_iterator." + operation + "]",
                     std::move(use)});
  };
  add_iterator("next", [it] { it->next(); });
  add_iterator("get_next", [it] { it->get_next(); });
  add_iterator("element_spec", [it] { it->element_spec(); });
  add_iterator("save", [it] { it->save(); });
  add_iterator("restore", [it] { it->restore("x"); });
  add_iterator("cancel", [it] { it->cancel(); });
  add_iterator("report", [it] { it->report(); });
  add_iterator("trackable", [it] { it->trackable(); });
}

void add_keras(std::vector<Case>& cases) {
  const auto layer = gone<keras::Layer>(std::make_shared<Doubled>());
  const auto dense = gone(keras::Dense(2));
  cases.push_back({"Layer.call", "[layer] expected a Layer", [layer] { (*layer)(ones({1, 2})); }});
  cases.push_back({"Dense.call", "[layer] expected a Layer", [dense] { (*dense)(ones({1, 2})); }});
  cases.push_back({"Layer.name", "[layer.name]", [layer] { layer->name(); }});
  cases.push_back({"Layer.variables", "[layer.variables]", [layer] { layer->variables(); }});
  cases.push_back({"Layer.trackable", "[layer.trackable]", [layer] { layer->trackable(); }});
  cases.push_back({"Layer(null)", "[layer] expected a Layer",
                   [] { keras::Layer null = std::shared_ptr<Doubled>(); }});
  const auto loss = gone(keras::Loss("mse"));
  cases.push_back({"Loss", "[loss] expected a Loss", [loss] { (*loss)(ones({1}), ones({1})); }});
  cases.push_back({"Loss()", "[loss] expected a Loss", [] { keras::Loss().name(); }});
  const auto adam = gone(keras::Optimizer("adam"));
  cases.push_back({"Optimizer", "[optimizer] expected a", [adam] { adam->apply_gradients({}); }});
  cases.push_back({"Optimizer()", "[optimizer]", [] { keras::Optimizer().learning_rate(); }});
  const auto metric = gone<keras::Metric>(keras::Mean());
  cases.push_back({"Metric", "[metric] expected a Metric", [metric] { metric->result(); }});
  cases.push_back({"Metric(null)", "[metric] expected a MetricBase",
                   [] { keras::Metric null = std::shared_ptr<keras::MetricBase>(); }});
  const auto mean = gone(keras::Mean());
  cases.push_back(
      {"Mean", "[metric] expected a Metric", [mean] { mean->update_state(ones({1})); }});
  cases.push_back({"Callback(null)", "[callback] expected a Callback", [] {
                     const std::shared_ptr<keras::CallbackBase> none;
                     keras::Sequential model({keras::Dense(1)});
                     model.compile({.optimizer = "sgd", .loss = "mse"});
                     model.fit(ones({2, 1}), ones({2, 1}), {.callbacks = {none}});
                   }});
}

void add_checkpoints(std::vector<Case>& cases) {
  const Variable v(1.0);
  const Checkpoint whole({{"v", v}});
  const auto checkpoint = gone(whole);
  cases.push_back(
      {"Checkpoint.save", "[checkpoint.save]", [checkpoint] { checkpoint->save("x"); }});
  const auto manager = gone(CheckpointManager(whole, "nowhere"));
  const auto add = [&](const std::string& operation, std::function<void()> use) {
    cases.push_back({"CheckpointManager." + operation, "[checkpoint_manager." + operation + "]",
                     std::move(use)});
  };
  add("save", [manager] { manager->save(); });
  add("wait", [manager] { manager->wait(); });
  add("checkpoints", [manager] { manager->checkpoints(); });
  add("checkpoints", [manager] { manager->latest_checkpoint(); });
  add("restore_latest", [manager] { manager->restore_latest(); });
  add("directory", [manager] { manager->directory(); });
}

void add_writers(std::vector<Case>& cases) {
  const cohort::testing::TemporaryFolder folder;
  const auto writer = gone(SummaryWriter(folder.path()));
  const std::string tag = "[summary_writer.";
  cases.push_back(
      {"SummaryWriter.scalar", tag + "scalar]", [writer] { writer->scalar("x", 1, 0); }});
  cases.push_back({"SummaryWriter.flush", tag + "flush]", [writer] { writer->flush(); }});
  cases.push_back({"SummaryWriter.log_dir", tag + "log_dir]", [writer] { writer->log_dir(); }});
  cases.push_back({"GradientTape.watch", "[variable.name]", [] {
                     const Variable none;
                     GradientTape().watch(none);
                   }});
}

TEST(EmptyHandles, SayWhichClassAndWhatToDo) {
  std::vector<Case> cases;
  add_writers(cases);
  add_strategies(cases);
  add_variables(cases);
  add_datasets(cases);
  add_distributed(cases);
  add_keras(cases);
  add_checkpoints(cases);
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    testing::expect_error<FailedPrecondition>({one.tag, "empty handle", "make it anew"}, one.use);
  }
}

TEST(EmptyHandles, ThatMeanNoneRefuseToBeCalled) {
  testing::expect_error<FailedPrecondition>({"[regularizer]", "got none"},
                                            [] { keras::Regularizer()(ones({1})); });
  testing::expect_error<FailedPrecondition>({"[constraint]", "got none"},
                                            [] { keras::Constraint()(ones({1})); });
  testing::expect_error<InvalidArgument>({"[logs]", "index of 0 values, got 0"},
                                         [] { keras::Logs().name(0); });
  testing::expect_error<InvalidArgument>({"[logs]", "index of 1 values, got 3"}, [] {
    keras::Logs({{"loss", 1.0}}).number(std::size_t{3});
  });
}

// Where empty means "none", a handle that was moved from keeps what it had: a schedule must not
// become a rate of 0, nor an activation the identity.
TEST(MovedFrom, FunctionsOfModelsStayWhatTheyAre) {
  const auto rate = gone<keras::LearningRate>([](int64_t) { return 0.5; });
  EXPECT_TRUE(rate->is_schedule());
  EXPECT_EQ((*rate)(3), 0.5);
  const auto zeros = gone(keras::Initializer("ones"));
  EXPECT_EQ((*zeros)({2}, kFloat32).sum().item<float>(), 2);
  const auto relu = gone(keras::ActivationFunction("relu"));
  EXPECT_EQ((*relu)(scalar(-1)).item<float>(), 0);
  EXPECT_TRUE(*gone(keras::Regularizer("l2")));
}

TEST(MovedFrom, ValuesAreEmpty) {
  const auto bools = gone(PerReplica<bool>({true, false}));
  EXPECT_EQ(bools->size(), 0U);
  EXPECT_THROW(bools->local(), FailedPrecondition);
  const auto gradient = gone(Gradient(ones({2})));
  EXPECT_FALSE(gradient->has_value());
  const auto element = gone(Element({ones({2}), ones({2})}));
  EXPECT_FALSE(element->has_value());
  EXPECT_FALSE(element->is_tuple());
  EXPECT_THROW(element->tensor(), InvalidArgument);
}

// References into what ends with the line would be read after it.
TEST(Temporaries, GiveValues) {
  const auto pair = [] { return Element({ones({2}), Element(std::string("name"))}); };
  static_assert(std::is_same_v<decltype(pair()[0]), Element>);
  static_assert(std::is_same_v<decltype(pair()[0].tensor()), Tensor>);
  static_assert(std::is_same_v<decltype(pair()[1].string()), std::string>);
  static_assert(std::is_same_v<decltype(pair().strings()), std::vector<std::string>>);
  const Tensor& kept = pair()[0].tensor();
  EXPECT_EQ(kept.sum().item<float>(), 2);
  const Element& second = pair()[1];
  EXPECT_EQ(second.string(), "name");
  const auto history = [] { return keras::History{.epoch = {0}, .history = {{"loss", {0.5}}}}; };
  for (const double loss : history()["loss"]) EXPECT_EQ(loss, 0.5);
  static_assert(std::is_same_v<decltype(history()["loss"]), std::vector<double>>);
  static_assert(std::is_same_v<decltype(history().history.at("loss")), std::vector<double>>);
}

}  // namespace
}  // namespace cohort
