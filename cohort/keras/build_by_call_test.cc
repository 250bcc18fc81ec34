// SPDX-License-Identifier: Apache-2.0
//
// Layers whose sub-layers get their shapes from call(): as in Keras, they are there when the model
// is built, so that nothing is missing from its weights, its summary and its files.
#include <gtest/gtest.h>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;

struct Block : LayerBase {
  Dense first = add("first", Dense(3)), second = add("second", Dense(2));
  Dense unused = add("unused", Dense(2));
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return second(first(x, args), args);
  }
  Shape compute_output_shape(const Shape& in) const override {
    Shape out = in;
    out.back() = 2;
    return out;
  }
};

// Rows of a table, by their numbers.
struct Embed : LayerBase {
  Dense after = add("after", Dense(2));
  Variable table;
  void build(const Shape&) override { table = add_weight({.name = "table", .shape = {5, 3}}); }
  Tensor call(const Tensor& ids, const CallArgs& args) override {
    return after(table.value().index_select(0, ids.reshape({-1})).reshape({ids.size(0), -1}), args);
  }
  Shape compute_output_shape(const Shape& in) const override { return {in[0], 2}; }
};

// Wants to be asked with data.
struct Picky : LayerBase {
  Dense out = add("out", Dense(4));
  Tensor call(const Tensor& x, const CallArgs& args) override {
    if (x.sum().item<double>() == 0) throw InvalidArgument("zeros");
    return out(x, args);
  }
};

class BuildByCall : public testing::FolderTest {};

TEST_F(BuildByCall, MakesAllWeightsBehindAnInputLayer) {
  for (const int replicas : {0, 2}) {
    const Strategy strategy = testing::strategy_of(replicas);
    const auto scope = strategy.scope();
    const auto make = [] {
      return Sequential({InputLayer({4}), std::make_shared<Block>(), Dense(1)});
    };
    Sequential model = make(), other = make();
    EXPECT_EQ(model.count_params(), (4 * 3 + 3) + (3 * 2 + 2) + (2 + 1));
    EXPECT_NE(model.summary_text().find("23"), std::string::npos) << model.summary_text();
    model.save_weights(path("w.safetensors"));
    EXPECT_EQ(load_tensors(path("w.safetensors")).tensors.size(), 6u);
    other.load_weights(path("w.safetensors"));
    const Tensor x = ones({3, 4});
    EXPECT_TRUE(other.predict(x, {.verbose = Verbose::kSilent})
                    .equal(model.predict(x, {.verbose = Verbose::kSilent})));
  }
}

TEST_F(BuildByCall, TriesNumbersOfRowsToo) {
  Sequential model({InputLayer({4}), std::make_shared<Embed>()});
  EXPECT_EQ(model.count_params(), 5 * 3 + 4 * 3 * 2 + 2);
}

TEST_F(BuildByCall, HappensBeforeTraining) {
  struct Net : Model {
    Layer inner = add("inner", Layer(std::make_shared<Block>()));
    Tensor call(const Tensor& x, const CallArgs& args) override { return inner(x, args); }
  } net;
  net.ensure_built({kUnknownDim, 4});
  EXPECT_EQ(net.count_params(), 23);
}

TEST_F(BuildByCall, IsAskedForWhereItCannotBe) {
  const auto expect_waiting = [&](Sequential& model, const Tensor& x, const char* path_text) {
    const std::string file = path("w.safetensors");
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { model.save_weights(file); }, [&] { model.get_weights(); },
             [&] { model.load_weights(file); }, [&] { model.set_weights({}); }}) {
      expect_error<FailedPrecondition>({model.name(), path_text, "call the model on data first"},
                                       call);
    }
    EXPECT_NE(model.summary_text().find("(unbuilt)"), std::string::npos);
    model(x);
    model.save_weights(file);
    EXPECT_FALSE(load_tensors(file).tensors.empty());
  };
  Sequential sizes({InputLayer({kUnknownDim, 4}), Dense(4), std::make_shared<Block>()});
  expect_waiting(sizes, ones({2, 7, 4}), "/first\"");
  Sequential picky({InputLayer({4}), Dense(4), std::make_shared<Picky>()});
  expect_waiting(picky, ones({2, 4}), "/out\"");
}

// Multiplies by a matrix that does not fit.
struct Wrong : LayerBase {
  Dense out = add("out", Dense(4));
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return out(x.matmul(ones({5, 3})), args);
  }
  Shape compute_output_shape(const Shape& in) const override { return {in[0], 4}; }
};

TEST_F(BuildByCall, SaysWhyItCouldNotBe) {
  Sequential wrong({InputLayer({4}), std::make_shared<Wrong>()});
  expect_error<FailedPrecondition>(
      {"call the model on data first",
       "building it by a call with zeros failed, of float32: ", "2x4 and 5x3"},
      [&] { wrong.save_weights(path("w.safetensors")); });
  Sequential picky({InputLayer({4}), std::make_shared<Picky>()});
  expect_error<FailedPrecondition>({"a call with zeros failed, of float32: ", "zeros"},
                                   [&] { picky.get_weights(); });
  picky(ones({2, 4}));
  EXPECT_EQ(picky.zeros_error(), "") << "mended by the call";
  EXPECT_EQ(picky.get_weights().size(), 2U);
}

TEST_F(BuildByCall, ASequentialThatTheProgramBuildsIsBuilt) {
  Sequential model({Dense(3), Dense(2)});
  EXPECT_FALSE(model.built());
  model.build({kUnknownDim, 4});
  EXPECT_TRUE(model.built());
  EXPECT_EQ(model.count_params(), (4 * 3 + 3) + (3 * 2 + 2));
  model.build({kUnknownDim, 4});  // changes nothing
  EXPECT_EQ(model.count_params(), (4 * 3 + 3) + (3 * 2 + 2));
  Sequential block({std::make_shared<Block>()});
  block.build({kUnknownDim, 4});
  EXPECT_EQ(block.get_weights().size(), 4U) << "also by a call, where only call() knows";
}

// Its build makes its weights, and leaves alone what needs no building.
struct BuildsItself : LayerBase {
  Layer dense = add("dense", Dense(2));
  Layer drop = add("drop", Dropout(0.5));
  void build(const Shape& in) override { dense.base().ensure_built(in); }
  Tensor call(const Tensor& x, const CallArgs& args) override { return drop(dense(x, args), args); }
};

TEST_F(BuildByCall, IsNotAskedForBecauseOfLayersWithoutWeights) {
  Sequential model({InputLayer({kUnknownDim, 4}), std::make_shared<BuildsItself>()});
  model.build({kUnknownDim, kUnknownDim, 4});
  EXPECT_EQ(model.get_weights().size(), 2U);
  model.save_weights(path("w.safetensors"));
  EXPECT_EQ(load_tensors(path("w.safetensors")).tensors.size(), 2U);
}

}  // namespace
}  // namespace cohort::keras
