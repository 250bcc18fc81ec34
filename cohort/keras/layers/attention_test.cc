// SPDX-License-Identifier: Apache-2.0
//
// What golden files do not show of attention: arguments of a call, draws and refusals.
#include "cohort/keras/layers/attention.h"

#include <ATen/ops/einsum.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

std::vector<Layer> all_kinds() {
  return {Attention(), AdditiveAttention(), MultiHeadAttention(2, 3),
          MultiHeadAttention(2, 3, {.dropout = 0.5}), GroupedQueryAttention(3, 4, 2)};
}

// With a causal mask the first outputs are those of the first inputs alone.
TEST(Attention, CausalMasksHideWhatComesLater) {
  const Tensor x = random_normal({2, 5, 4});
  const Tensor start = x.narrow(1, 0, 2);
  for (const Layer& layer : all_kinds()) {
    const CallArgs causal{.use_causal_mask = true};
    const Tensor whole = layer(Element{x, x}, causal).tensor();
    const Tensor part = layer(Element{start, start}, causal).tensor();
    EXPECT_LE(distance(whole.narrow(1, 0, 2), part), 1e-6) << layer;
    EXPECT_GT(distance(layer(Element{x, x}).tensor().narrow(1, 0, 2), part), 1e-4) << layer;
  }
}

TEST(Attention, GivesItsScores) {
  const Tensor x = random_normal({2, 3, 4}), y = random_normal({2, 5, 4});
  for (const Layer& layer : all_kinds()) {
    const Element out = layer(Element{x, y}, {.return_attention_scores = true});
    ASSERT_EQ(out.size(), 2U) << layer;
    const Tensor scores = out[1].tensor();
    EXPECT_EQ(scores.size(-2), 3) << layer;
    EXPECT_EQ(scores.size(-1), 5) << layer;
    EXPECT_LE(distance(scores.sum(-1), at::ones_like(scores.sum(-1))), 1e-6) << layer;
    EXPECT_LE(distance(out[0].tensor(), layer(Element{x, y}).tensor()), 1e-6) << layer;
  }
}

// An attention mask of the causal pairs is the causal mask.
TEST(Attention, TakesAMaskOfPairs) {
  const Tensor x = random_normal({2, 4, 6});
  const Tensor pairs = ones({2, 4, 4}, kBool).tril();
  for (const Layer& layer :
       {Layer(MultiHeadAttention(2, 3)), Layer(GroupedQueryAttention(3, 4, 2))}) {
    const Tensor by_mask = layer(Element{x, x}, {.attention_mask = pairs}).tensor();
    const Tensor causal = layer(Element{x, x}, {.use_causal_mask = true}).tensor();
    EXPECT_LE(distance(by_mask, causal), 1e-6) << layer;
  }
}

TEST(Attention, DropsScoresWhileTraining) {
  set_seed(5);
  for (const Layer& layer :
       {Layer(Attention({.dropout = 0.5})), Layer(AdditiveAttention({.dropout = 0.5})),
        Layer(MultiHeadAttention(2, 3, {.dropout = 0.5}))}) {
    const Tensor x = random_normal({2, 6, 4});
    const Element in = {x, x};
    const Tensor a = layer(in, {.training = true}).tensor();
    const Tensor b = layer(in, {.training = true}).tensor();
    EXPECT_GT(distance(a, b), 1e-3) << layer;
    EXPECT_LE(distance(layer(in).tensor(), layer(in).tensor()), 0) << layer;
  }
}

struct SelfAttention : LayerBase {
  MultiHeadAttention attention = add("attention", MultiHeadAttention(2, 2, {.use_bias = false}));
  void build(const Shape& in) override {
    const TensorSpec x{.shape = in, .dtype = floatx()};
    attention.base().ensure_built_for(ElementSpec::tuple({x, x}));
  }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return attention(Element{x, x}).tensor();
  }
};

TEST(Attention, GradientsMatchPlainOperations) {
  const auto project = [](const Tensor& x, const Tensor& kernel) {
    return at::einsum("btm,mnh->bnth", {x, kernel});
  };
  testing::check_gradients(
      {.name = "multi_head_attention",
       .make = []() -> Layer { return std::make_shared<SelfAttention>(); },
       .input = {4, 3, 3},
       .reference = [&](const Tensor& x, const std::vector<Tensor>& w) -> Tensor {
         const Tensor q = project(x, w[0]), k = project(x, w[1]);
         const Tensor seen = (q.matmul(k.transpose(-2, -1)) / std::sqrt(2.0)).softmax(-1);
         return at::einsum("bnth,nhm->btm", {seen.matmul(project(x, w[2])), w[3]});
       }});
}

TEST(Attention, RefusesWhatItCannotDo) {
  EXPECT_THROW(MultiHeadAttention(2, 3, {.flash_attention = true}), Unimplemented);
  EXPECT_THROW(GroupedQueryAttention(3, 4, 2, {.flash_attention = true}), Unimplemented);
  EXPECT_THROW(GroupedQueryAttention(3, 4, 3), InvalidArgument);
  EXPECT_THROW(MultiHeadAttention(0, 3), InvalidArgument);
  EXPECT_THROW(Attention({.score_mode = "sum"}), InvalidArgument);
  EXPECT_THROW(Attention({.dropout = 2}), InvalidArgument);
  const Tensor x = random_normal({2, 3, 4});
  EXPECT_THROW(MultiHeadAttention(2, 3)(x), InvalidArgument);
  EXPECT_THROW(Attention()(Element{x, x, x, x}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
