// SPDX-License-Identifier: Apache-2.0
//
// Loading a model does not draw the weights that the file has; everything else is as if it did.
#include "cohort/keras/internal/weights_to_come.h"

#include <gtest/gtest.h>

#include <vector>

#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::strategy_of;
using internal::WeightsToCome;

struct NoteOptions {
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  static void fields(auto&, auto&&) {}
};

// Has a weight that it keeps out of files.
struct NoteLayer : LayerImpl<NoteOptions> {
  using LayerImpl::LayerImpl;
  Variable kept, own, written;
  void build(const Shape& in) override {
    own = add_weight({.name = "own", .shape = {in.back()}, .initializer = "random_normal"});
    written = add_weight({.name = "written", .shape = {2}, .initializer = "random_normal"});
    written.assign(full({2}, 5));
    kept = add_weight({.name = "kept", .shape = {in.back()}, .initializer = "random_normal"});
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x + own + kept; }
  std::vector<Variable> stored_weights() const override { return {kept}; }
};
COHORT_REGISTER_SERIALIZABLE("weights_to_come_test", NoteLayer);

std::vector<Tensor> values_of(const LayerBase& layer) {
  std::vector<Tensor> values;
  for (const Variable& v : layer.variables()) values.push_back(v.value().detach().clone());
  return values;
}

Tensor next_draw() { return Initializer("glorot_uniform")({3, 4}, kFloat32); }

class WeightsToComeUnder : public testing::FolderTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Strategies, WeightsToComeUnder, ::testing::Values(0, 1, 2));

TEST_P(WeightsToComeUnder, AreTheFilesAndAllElseIsAsEver) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  Sequential model({InputLayer({3}), Dense(4, {.kernel_initializer = "orthogonal"}),
                    std::make_shared<NoteLayer>(NoteOptions{}),
                    Dense(2, {.kernel_initializer = HeNormal(3)})});
  const Config config = model.serialize();
  const std::string file = path("m.keras");
  model.save(file);
  const std::vector<Tensor> saved = values_of(model);

  set_seed(7);
  const std::vector<Tensor> drawn = values_of(*model_from_config(config));
  const Tensor next = next_draw();
  set_seed(7);
  const auto loaded = load_model(file);
  EXPECT_TRUE(next_draw().equal(next));
  const std::vector<Tensor> values = values_of(*loaded);
  ASSERT_EQ(values.size(), 7U);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_own = loaded->variables()[i].name().ends_with("/own");
    EXPECT_TRUE(values[i].equal(is_own ? drawn[i] : saved[i])) << loaded->variables()[i].name();
    EXPECT_EQ(is_own, i == 2);
  }
}

// Only of layers, on this thread, and of Cohort's own initializers.
TEST(WeightsToCome, AreZerosUntilThen) {
  const Dense drawn(2), fixed(2, {.kernel_initializer = "ones"});
  const Dense own(2, {.kernel_initializer = [](const Shape& shape, DType dtype) {
                    return full(shape, 5, dtype);
                  }});
  {
    const WeightsToCome to_come(true);
    for (const Dense& layer : {drawn, fixed, own}) layer.base().ensure_built({kUnknownDim, 3});
    EXPECT_FALSE(next_draw().equal(zeros({3, 4})));
    EXPECT_TRUE(drawn.variables()[0].value().equal(zeros({3, 2})));
    EXPECT_TRUE(fixed.variables()[0].value().equal(ones({3, 2})));
    EXPECT_TRUE(own.variables()[0].value().equal(full({3, 2}, 5)));
    to_come.draw_all_but(std::vector<Variable>());
    EXPECT_FALSE(drawn.variables()[0].value().equal(zeros({3, 2})));
  }
  const WeightsToCome as_ever(false);
  const Dense another(2);
  another.base().ensure_built({kUnknownDim, 3});
  EXPECT_FALSE(another.variables()[0].value().equal(zeros({3, 2})));
}

// A layer may keep a backbone out of the file, or a state be larger than the weights; but no file
// takes all memory.
TEST(WeightsToCome, MayBeInNoFileAsFarAsMemoryIsFree) {
  WeightsToCome small(true, /*bytes=*/100, /*besides=*/1000);
  small.expect("w", {200}, kFloat32);
  small.expect("state", {250}, kFloat32);
  expect_error<InvalidArgument>(
      {"whose weights are in the file", "more of shape [1]", "1800 bytes"},
      [&] { small.expect("more", {1}, kFloat32); });
  WeightsToCome::set_most_besides(10);
  EXPECT_EQ(WeightsToCome::most_besides(), 10U);
  WeightsToCome::set_most_besides(std::nullopt);
  EXPECT_GE(WeightsToCome::most_besides(), uint64_t{256} << 20);
  EXPECT_LT(WeightsToCome::most_besides(), uint64_t{1} << 50);
  WeightsToCome unknown(true);
  unknown.expect("w", {int64_t{1} << 40}, kFloat32);
}

}  // namespace
}  // namespace cohort::keras
