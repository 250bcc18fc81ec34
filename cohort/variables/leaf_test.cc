// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/variables/component.h"

namespace cohort {
namespace {

std::vector<float> numbers(const Tensor& t) { return to_vector<float>(t); }

Tensor leaf_of(const Tensor& values) { return values.clone().set_requires_grad(true); }

TEST(AdoptedLeaf, KeepsItsIdentityAndTakesOverTheMemory) {
  const Variable w(tensor({1, 2}));
  const void* place = w.value().data_ptr();
  const Tensor leaf = leaf_of(tensor({7, 7}));
  local_impl(w.impl()).leaf_of(0).adopt(leaf);
  EXPECT_TRUE(w.value().is_same(leaf));
  EXPECT_EQ(leaf.data_ptr(), place);
  EXPECT_EQ(numbers(leaf), (std::vector<float>{1, 2}));
  w.assign(tensor({3, 4}));
  EXPECT_EQ(numbers(leaf), (std::vector<float>{3, 4}));
}

TEST(AdoptedLeaf, RequiresGradientsAsTheVariableDoes) {
  const Variable frozen(tensor({1, 2}), {.trainable = false});
  const Tensor leaf = leaf_of(tensor({7, 7}));
  local_impl(frozen.impl()).leaf_of(0).adopt(leaf);
  EXPECT_FALSE(leaf.requires_grad());
}

TEST(AdoptedLeaf, OutlivesTheVariable) {
  const at::AutoGradMode on(true);
  const Tensor leaf = leaf_of(tensor({7, 7}));
  Tensor loss;
  {
    const Variable w(tensor({1, 2}));
    local_impl(w.impl()).leaf_of(0).adopt(leaf);
    loss = (leaf * leaf).sum();
  }
  loss.backward();
  EXPECT_EQ(numbers(leaf), (std::vector<float>{1, 2}));
  EXPECT_EQ(numbers(leaf.grad()), (std::vector<float>{2, 4}));
}

TEST(AdoptedLeaf, HasToFit) {
  const at::AutoGradMode on(true);
  const Variable w(tensor({1, 2}));
  EXPECT_THROW(local_impl(w.impl()).leaf_of(0).adopt(leaf_of(tensor({1, 2, 3}))), InvalidArgument);
  EXPECT_THROW(local_impl(w.impl()).leaf_of(0).adopt(leaf_of(tensor({1, 2}, kFloat64))),
               InvalidArgument);
  EXPECT_THROW(local_impl(w.impl()).leaf_of(0).adopt(leaf_of(tensor({1, 2})) * 2), InvalidArgument);
}

}  // namespace
}  // namespace cohort
