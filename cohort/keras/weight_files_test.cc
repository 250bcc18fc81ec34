// SPDX-License-Identifier: Apache-2.0
//
// Weights of one model in another one of the same code, whatever else is in the process, and files
// of earlier versions.
#include <gtest/gtest.h>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;

class WeightFiles : public testing::FolderTest {
 protected:
  std::string file() const { return path("w.safetensors"); }
  std::vector<std::string> names_in(const std::string& name) const {
    std::vector<std::string> out;
    for (const auto& entry : load_tensors(path(name)).tensors) out.push_back(entry.first);
    return out;
  }
};

Sequential mlp() { return Sequential({InputLayer({2}), Dense(2), Dense(2), Dense(2)}); }

bool same_weights(const Model& a, const Model& b) {
  const auto x = a.get_weights(), y = b.get_weights();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!x[i].equal(y.at(i))) return false;
  }
  return x.size() == y.size();
}

TEST_F(WeightFiles, LoadIntoASecondModelOfTheSameCode) {
  const Sequential first = mlp();
  Sequential second = mlp();
  first.save_weights(file());
  EXPECT_FALSE(same_weights(first, second));
  second.load_weights(file());
  EXPECT_TRUE(same_weights(first, second));
  second.save_weights(path("again.safetensors"));
  EXPECT_EQ(names_in("again.safetensors"), names_in("w.safetensors"));
  EXPECT_EQ(names_in("w.safetensors"),
            (std::vector<std::string>{"layers/dense/vars/0", "layers/dense/vars/1",
                                      "layers/dense_1/vars/0", "layers/dense_1/vars/1",
                                      "layers/dense_2/vars/0", "layers/dense_2/vars/1"}));
}

// Its layers have the names of the first one's, whose numbers say nothing of their order.
TEST_F(WeightFiles, LoadIntoACloneByConfig) {
  const Dense head(2), trunk(2, {.activation = "relu"});
  const auto inner = std::make_shared<Sequential>(std::vector<Layer>{head, Dense(2)});
  Sequential first({InputLayer({2}), trunk, inner});
  first.save_weights(file());
  const auto clone = model_from_json(first.to_json());
  clone->load_weights(file());
  EXPECT_TRUE(same_weights(first, *clone));
  Checkpoint({{"model", first}}).save(path("checkpoint"));
  const auto other = model_from_json(first.to_json());
  EXPECT_FALSE(same_weights(first, *other));
  Checkpoint({{"model", *other}}).restore(path("checkpoint")).assert_consumed();
  EXPECT_TRUE(same_weights(first, *other));
}

struct Own : Model {
  Dense in = add("in", Dense(2));
  Sequential inner = Sequential();
  Dense left = Dense(2), right = Dense(2);
  Own() { track(left), track(right); }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return left(in(x, args), args) + right(x, args);
  }
};

// As Keras has them: what stands before "layers" in the alphabet has a place of its own, all
// others are in the list, numbered in it.
TEST_F(WeightFiles, OfOwnModelsAreNamedByAttributesOrClasses) {
  Own first;
  first(ones({1, 2}));
  first.save_weights(file());
  EXPECT_EQ(names_in("w.safetensors"),
            (std::vector<std::string>{"in/vars/0", "in/vars/1", "layers/dense_1/vars/0",
                                      "layers/dense_1/vars/1", "layers/dense_2/vars/0",
                                      "layers/dense_2/vars/1"}));
  Own second;
  second(ones({1, 2}));
  second.load_weights(file());
  EXPECT_TRUE(same_weights(first, second));
}

// Its weight "inner/gain" and the weight "gain" of its layer "inner".
struct Crossed : LayerBase {
  struct Gain : LayerBase {
    Variable gain = add_weight({.name = "gain", .shape = {1}});
    Tensor call(const Tensor& x, const CallArgs&) override { return x * gain; }
  };
  std::shared_ptr<Gain> inner = std::make_shared<Gain>();
  Variable gain = add_weight({.name = "inner/gain", .shape = {1}});
  Crossed() {
    inner->set_name("inner");
    track(inner);
  }
  Tensor call(const Tensor& x, const CallArgs& args) override { return (*inner)(x, args) + gain; }
};

TEST_F(WeightFiles, KeepWeightsWhosePathsWouldBeTheSame) {
  const Sequential first({std::make_shared<Crossed>()});
  Sequential second({std::make_shared<Crossed>()});
  first.save_weights(file());
  EXPECT_EQ(names_in("w.safetensors").size(), 2u);
  EXPECT_FALSE(same_weights(first, second));
  second.load_weights(file());
  EXPECT_TRUE(same_weights(first, second));
}

TEST_F(WeightFiles, OfModelCheckpointLoadIntoAFreshModel) {
  const auto make = [] {
    Sequential model({Dense(4, {.activation = "relu"}), Dense(1)});
    model.compile({.optimizer = "adam", .loss = "mse"});
    return model;
  };
  const Tensor x = arange(8, kFloat32).reshape({4, 2}) / 8, y = x.sum(1, true);
  Sequential trained = make();
  const std::string pattern = path("runs/{epoch}/best.safetensors");
  trained.fit(x, y,
              {.epochs = 2, .callbacks = {ModelCheckpoint(pattern)}, .verbose = Verbose::kSilent});
  const MirroredStrategy two(std::vector<Device>{"CPU:0", "CPU:1"});
  Sequential fresh = [&] {
    const auto scope = two.scope();
    return make();
  }();
  fresh.predict(x, {.verbose = Verbose::kSilent});
  fresh.load_weights(path("runs/2/best.safetensors"));
  EXPECT_TRUE(same_weights(trained, fresh));
}

TEST_F(WeightFiles, ThatDoNotFitListTheDifferencesByTheseNames) {
  mlp().save_weights(file());
  Sequential other({InputLayer({2}), Dense(2), Dense(3)});
  expect_error<InvalidArgument>(
      {"layers/dense_1/vars/0 (", "): float32[2, 2] in the file, float32[2, 3] in the model",
       "not in the model: layers/dense_2/vars/0"},
      [&] { other.load_weights(file()); });
}

// What versions before wrote: the names of the variables, with the numbers of their process.
std::map<std::string, Tensor> old_file(const std::map<std::string, std::string>& names,
                                       const Model& model) {
  std::map<std::string, Tensor> out;
  for (const auto& [path, variable] : model.weight_names()) {
    const std::size_t slash = path.rfind('/');
    out[names.at(path.substr(0, slash)) + path.substr(slash)] = variable.value();
  }
  return out;
}

TEST_F(WeightFiles, OfEarlierVersionsStillLoad) {
  const Sequential saved = mlp();
  const std::map<std::string, std::string> ours = {{"format", "cohort"}, {"model", "sequential"}};
  for (const int first : {0, 1, 3, 9}) {
    const auto name = [&](int i) {
      return first + i == 0 ? std::string("dense") : "dense_" + std::to_string(first + i);
    };
    save_tensors(file(),
                 old_file({{"dense", name(0)}, {"dense_1", name(1)}, {"dense_2", name(2)}}, saved),
                 ours);
    Sequential model = mlp();
    model.load_weights(file());
    EXPECT_TRUE(same_weights(model, saved)) << first;
  }
}

// Layers are in the old files in the order in which they were made, not in the model's.
TEST_F(WeightFiles, OfEarlierVersionsFindLayersByTheOrderTheyWereMadeIn) {
  const auto make = [] {
    const Dense last(2), given(2, {.name = "dense_1"});
    const Dense first(2);
    return Sequential({InputLayer({2}), first, given, last});
  };
  const Sequential saved = make();
  save_tensors(
      file(),
      old_file({{"dense", "dense_8"}, {"dense_1", "dense_1"}, {"dense_2", "dense_7"}}, saved),
      {{"format", "cohort"}});
  Sequential model = make();
  model.load_weights(file());
  EXPECT_TRUE(same_weights(model, saved));
}

TEST_F(WeightFiles, OfEarlierVersionsAndOtherProgramsLoadByTheNamesThatTheyHave) {
  const Sequential saved = mlp();
  std::map<std::string, Tensor> by_path, by_name;
  for (const auto& [name, variable] : saved.weight_paths()) by_path[name] = variable.value();
  for (const auto& [name, variable] : saved.weight_names()) by_name[name] = variable.value();
  EXPECT_TRUE(by_name.contains("dense_1/kernel"));
  const std::map<std::string, std::string> before = {{"format", "cohort"}, {"names", "paths"}};
  for (const auto& [tensors, metadata] : {std::pair(by_path, std::map<std::string, std::string>()),
                                          {by_name, {}},
                                          {by_name, before}}) {
    save_tensors(file(), tensors, metadata);
    Sequential model = mlp();
    model.load_weights(file());
    EXPECT_TRUE(same_weights(model, saved)) << tensors.begin()->first;
  }
}

// Of mixed precision, in whose calls weights are read as copies of another type.
class LoadingLayer : public LayerBase {
 public:
  LoadingLayer(Model& model, std::string file)
      : LayerBase("loading"), model_(model), file_(std::move(file)) {}
  Tensor call(const Tensor& x, const CallArgs&) override {
    model_.load_weights(file_);
    return x;
  }

 private:
  Model& model_;
  const std::string file_;
};

TEST_F(WeightFiles, LoadInACallOfALayerOfMixedPrecision) {
  const std::string half = path("half.weights.h5");
  const Sequential first({InputLayer({2}), Dense(2, {.dtype = kFloat16})});
  first.save_weights(half);
  Sequential second({InputLayer({2}), Dense(2)});
  set_dtype_policy("mixed_float16");
  const Layer layer(std::make_shared<LoadingLayer>(second, half));
  set_dtype_policy({});
  layer(ones({1, 2}));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(second.get_weights()[i].equal(first.get_weights()[i].to(kFloat32))) << i;
  }
}

}  // namespace
}  // namespace cohort::keras
