// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/leaf_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/component.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/local_variables.h"

namespace cohort {
namespace {

std::vector<float> numbers(const Tensor& t) { return to_vector<float>(t); }

struct LeafGradients : ::testing::Test {
  const at::AutoGradMode on{true};
};

TEST_F(LeafGradients, AreCopiedIntoTheArena) {
  const std::vector<Variable> v = {Variable(tensor({1, 2, 3})), Variable(scalar(4))};
  (v[0] * v[0]).sum().backward();
  const Gradients g = gradients_of(v);
  EXPECT_EQ(numbers(g[0].gradient.dense()), (std::vector<float>{2, 4, 6}));
  EXPECT_TRUE(internal::variables::is_in_arena(v[0].impl(), g[0].gradient.dense()));
  EXPECT_TRUE(g[0].variable == v[0]);
  EXPECT_FALSE(g[1].gradient.has_value());
  // The caller's .grad stays his: what he does to it changes nothing here.
  v[0].local_tensor().mutable_grad().zero_();
  EXPECT_EQ(numbers(g[0].gradient.dense()), (std::vector<float>{2, 4, 6}));
}

TEST_F(LeafGradients, AddUpUntilZeroGrad) {
  const Variable w(tensor({1, 2}));
  (w * 3).sum().backward();
  (w * w).sum().backward();
  EXPECT_EQ(numbers(gradients_of(std::span(&w, 1))[0].gradient.as_tensor()),
            (std::vector<float>{5, 7}));
  zero_grad(std::span(&w, 1));
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(gradients_of(std::span(&w, 1))[0].gradient.has_value());
  (w * 3).sum().backward();
  EXPECT_EQ(numbers(gradients_of(std::span(&w, 1))[0].gradient.as_tensor()),
            (std::vector<float>{3, 3}));
}

TEST_F(LeafGradients, OfACreatedGraphCarryNoHistory) {
  const Variable w(tensor({1, 2}));
  (w * w * w).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_TRUE(w.grad().requires_grad());
  const Gradients g = gradients_of(std::span(&w, 1));
  EXPECT_FALSE(g[0].gradient.dense().requires_grad());
  EXPECT_EQ(numbers(g[0].gradient.dense()), (std::vector<float>{3, 12}));
  zero_grad(std::span(&w, 1));  // or the graph would keep itself alive
}

TEST_F(LeafGradients, SparseOnesAreSlices) {
  const Variable table(ones({4, 2}));
  const Tensor rows = at::embedding(table.local_tensor(), tensor({1, 3, 1}, kInt64), -1, false,
                                    /*sparse=*/true);
  rows.sum().backward();
  const Gradients g = gradients_of(std::span(&table, 1));
  ASSERT_TRUE(g[0].gradient.is_sparse());
  EXPECT_EQ(numbers(g[0].gradient.as_tensor()), (std::vector<float>{0, 0, 2, 2, 0, 0, 1, 1}));
}

// A leaf of somebody else's (a module's parameter) as a variable's component.
struct AdoptedLeaf : LeafGradients {
  AdoptedLeaf() { internal::variables::local_impl(w.impl()).leaf_of(0).adopt(leaf); }
  const Variable w{tensor({1, 2})};
  const Tensor leaf = tensor({0, 0}).set_requires_grad(true);
};

TEST_F(AdoptedLeaf, GetsTheSumOfItsUsesInTheSlot) {
  GradientTape tape({.persistent = true});
  const Tensor one = (leaf * leaf).sum() + (leaf * 3).sum() + (w * 10).sum();
  const Tensor two = (leaf * 100).sum();
  const Gradients a = tape.gradient(one, std::span(&w, 1));
  const Gradients b = tape.gradient(two, std::span(&w, 1));
  EXPECT_EQ(numbers(a[0].gradient.dense()), (std::vector<float>{15, 17}));
  EXPECT_TRUE(internal::variables::is_in_arena(w.impl(), a[0].gradient.dense()));
  EXPECT_EQ(numbers(b[0].gradient.dense()), (std::vector<float>{100, 100}));
  EXPECT_FALSE(leaf.grad().defined());
}

TEST_F(AdoptedLeaf, ObeysAHookOfTheUser) {
  leaf.register_hook([](const Tensor& gradient) { return gradient * 2; });
  GradientTape tape;
  const Gradients g = tape.gradient((leaf * leaf).sum(), std::span(&w, 1));
  EXPECT_EQ(numbers(g[0].gradient.dense()), (std::vector<float>{4, 8}));
}

TEST_F(AdoptedLeaf, HasSecondDerivatives) {
  GradientTape outer;
  Tensor first;
  {
    GradientTape inner;
    first = inner.gradient((leaf * leaf * leaf).sum(), w);
  }
  EXPECT_EQ(numbers(first), (std::vector<float>{3, 12}));
  EXPECT_EQ(numbers(outer.gradient(first, w)), (std::vector<float>{6, 12}));
}

TEST_F(AdoptedLeaf, KeepsGradWithoutATape) {
  (leaf * leaf).sum().backward();
  EXPECT_EQ(numbers(leaf.grad()), (std::vector<float>{2, 4}));
  EXPECT_EQ(numbers(gradients_of(std::span(&w, 1))[0].gradient.dense()),
            (std::vector<float>{2, 4}));
}

struct TwoReplicas : LeafGradients {
  Variable make(const Tensor& initial) {
    return Variable(variables->create(initial, {.trainable = true}));
  }
  internal::runtime::ReplicaGroup group{{.replicas = 2}};
  std::shared_ptr<internal::variables::LocalVariables> variables =
      std::make_shared<internal::variables::LocalVariables>(
          internal::variables::LocalVariablesOptions{
              .devices = {Device("CPU:0"), Device("CPU:1")}});
};

TEST_F(TwoReplicas, GetTheMeanAndTheSum) {
  const std::vector<Variable> v = {make(zeros({3})), make(zeros({2, 2})), make(zeros({}))};
  for (const ReduceOp op : {ReduceOp::kMean, ReduceOp::kSum}) {
    group.run([&](int replica) {
      const at::AutoGradMode record(true);
      zero_grad(v);
      (v[0] * (replica + 1.0)).sum().backward();
      if (replica == 1) (v[1] * 6).sum().backward();  // replica 0 counts as zero
      all_reduce_grad(v, op);
      const float half = op == ReduceOp::kMean ? 0.5F : 1;
      EXPECT_EQ(numbers(v[0].grad()), std::vector<float>(3, 3 * half));
      EXPECT_EQ(numbers(v[1].grad()), std::vector<float>(4, 6 * half));
      EXPECT_FALSE(v[2].grad().defined());
    });
  }
}

TEST_F(TwoReplicas, AreRefusedCrossReplicaAndForOthersVariables) {
  const Variable mine = make(zeros({2}));
  const Variable alone(zeros({2}));
  EXPECT_THROW(gradients_of(std::span(&mine, 1)), FailedPrecondition);
  EXPECT_THROW(group.run([&](int) { zero_grad(std::span(&alone, 1)); }), FailedPrecondition);
  EXPECT_THROW(group.run([&](int) { all_reduce_grad(std::span(&mine, 1), ReduceOp::kMax); }),
               InvalidArgument);
}

TEST_F(TwoReplicas, AFailureWritesNothing) {
  const Variable w = make(zeros({2}));
  EXPECT_THROW(group.run([&](int replica) {
    const at::AutoGradMode record(true);
    (w * (replica + 1.0)).sum().backward();
    if (replica == 1) throw InvalidArgument("[test] expected to fail");
    all_reduce_grad(std::span(&w, 1));
  }),
               InvalidArgument);
  EXPECT_EQ(numbers(w.impl().leaf_of(0).tensor.grad()), (std::vector<float>{1, 1}));
}

TEST_F(TwoReplicas, SparseOnesCannotBeReducedInPlace) {
  const Variable table = make(ones({4, 2}));
  testing::expect_error<Unimplemented>({"expected a dense .grad"}, [&] {
    group.run([&](int) {
      const at::AutoGradMode record(true);
      at::embedding(table.local_tensor(), tensor({1}, kInt64), -1, false, true).sum().backward();
      all_reduce_grad(std::span(&table, 1));
    });
  });
}

}  // namespace
}  // namespace cohort
