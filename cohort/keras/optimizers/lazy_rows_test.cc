// SPDX-License-Identifier: Apache-2.0
//
// Optimizers with sparse gradients: what lazy_rows does to every one of them, and sums over calls.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/variables/local_variables.h"

namespace cohort::keras {
namespace {

using cohort::internal::runtime::ReplicaGroup;
using cohort::internal::variables::LocalVariables;
using cohort::internal::variables::LocalVariablesOptions;
using cohort::internal::variables::VariableCreatorScope;

/// A table of six rows on replicas.
struct Table {
  explicit Table(int replicas) : group({.replicas = replicas}) {
    LocalVariablesOptions options{.devices = {}, .group = &group};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back("CPU:" + std::to_string(r));
    creator = std::make_shared<LocalVariables>(options);
    const VariableCreatorScope scope(creator);
    table = Variable((arange(12).to(kFloat32) * 0.9 + 1).cos().reshape({6, 2}), {.name = "table"});
  }
  /// Call `call` names row 1 twice, one row of its own and one of each replica; never row 5.
  IndexedSlices rows(int call, int replica) const {
    const std::vector<int64_t> at = {1, call % 3 + 2, 1, replica};
    return {(arange(8).to(kFloat32) * 0.7 + call + 3 * replica).sin().reshape({4, 2}),
            from_vector(at, {4}), table.shape()};
  }
  enum class Bring { kRows, kDense, kFirstDense };
  void train(const Optimizer& optimizer, Bring bring, int calls) {
    group.run([&](int r) {
      for (int call = 0; call < calls; ++call) {
        const bool dense = bring == Bring::kDense || (bring == Bring::kFirstDense && call % 2 == 0);
        const IndexedSlices sparse = rows(call, r);
        optimizer.apply_gradients(
            {{dense ? Gradient(sparse.to_dense()) : Gradient(sparse), table}});
      }
    });
  }
  std::vector<float> row(int64_t i) const { return to_vector<float>(table.value()[i]); }
  std::vector<float> weights() const { return to_vector<float>(table.value()); }

  ReplicaGroup group;
  std::shared_ptr<LocalVariables> creator;
  Variable table;
};

using Bring = Table::Bring;
using Make = std::function<Optimizer(bool lazy, int calls)>;

template <class O, class Options>
Make maker(Options options) {
  return [options](bool lazy, int calls) {
    Options own = options;
    own.learning_rate = 0.1;
    own.lazy_rows = lazy;
    own.gradient_accumulation_steps = calls;
    return Optimizer(O(own));
  };
}

struct Kind {
  const char* name;
  Make make;
  bool moves_other_rows;  // unless lazy
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"sgd", maker<SGD>(SGDOptions{}), false},
      {"sgd with weight decay", maker<SGD>(SGDOptions{.weight_decay = 0.1}), true},
      {"momentum", maker<SGD>(SGDOptions{.momentum = 0.9}), false},
      {"adagrad", maker<Adagrad>(AdagradOptions{}), false},
      {"adam", maker<Adam>(AdamOptions{}), false},
      {"adamw", maker<AdamW>(AdamOptions{}), true},
      {"rmsprop", maker<RMSprop>(RMSpropOptions{}), false},
      {"adadelta", maker<Adadelta>(AdadeltaOptions{}), false},
      {"adamax", maker<Adamax>(AdamaxOptions{}), false},
      {"nadam", maker<Nadam>(NadamOptions{}), false},
      {"ftrl", maker<Ftrl>(FtrlOptions{}), true},
      {"lion", maker<Lion>(LionOptions{}), false},
  };
  return all;
}

TEST(LazyRows, LeaveOthersAloneWithEveryOptimizer) {
  for (const Kind& kind : kinds()) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(kind.name);
      Table lazy(replicas), dense(replicas);
      const std::vector<float> first = lazy.row(5);
      lazy.train(kind.make(true, 1), Bring::kRows, 6);
      EXPECT_EQ(lazy.row(5), first);
      EXPECT_NE(lazy.row(1), dense.row(1));
      dense.train(kind.make(false, 1), Bring::kRows, 6);
      EXPECT_EQ(dense.row(5) != first, kind.moves_other_rows);
    }
  }
}

// Row 1 is named in every call: nothing waits, so both are the same.
TEST(LazyRows, OfEveryCallAreThoseOfTheDenseUpdate) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Table lazy(2), dense(2);
    lazy.train(kind.make(true, 1), Bring::kRows, 5);
    dense.train(kind.make(false, 1), Bring::kDense, 5);
    EXPECT_EQ(lazy.row(1), dense.row(1));
  }
}

TEST(LazyRows, AddUpOverCalls) {
  for (const Kind& kind : kinds()) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(kind.name);
      Table lazy(replicas), dense(replicas), rows(replicas), mixed(replicas);
      const std::vector<float> first = lazy.row(5);
      dense.train(kind.make(false, 2), Bring::kDense, 6);
      rows.train(kind.make(false, 2), Bring::kRows, 6);
      mixed.train(kind.make(false, 2), Bring::kFirstDense, 6);
      lazy.train(kind.make(true, 2), Bring::kRows, 6);
      EXPECT_EQ(rows.weights(), dense.weights());
      EXPECT_EQ(mixed.weights(), dense.weights());
      EXPECT_EQ(lazy.row(5), first);
      EXPECT_EQ(lazy.row(1), dense.row(1));
    }
  }
}

TEST(LazyRows, SumsOverCallsAreReadAndSet) {
  Table table(2);
  const Optimizer optimizer = SGD({.learning_rate = 1, .gradient_accumulation_steps = 2});
  table.train(optimizer, Bring::kRows, 1);
  const Variable sum = optimizer.variables()[1];
  const Tensor expected = table.rows(0, 0).to_dense() + table.rows(0, 1).to_dense();
  EXPECT_EQ(to_vector<float>(sum.value()), to_vector<float>(expected));
  sum.assign(ones({6, 2}));
  EXPECT_EQ(to_vector<float>(sum.value()), std::vector<float>(12, 1));
  const Tensor before = table.table.value().clone();
  table.group.run([&](int r) {
    optimizer.apply_gradients(
        {{IndexedSlices{ones({1, 2}), full({1}, r, kInt64), {6, 2}}, table.table}});
  });
  const auto moved = to_vector<float>(before - table.table.value());
  const std::vector<float> want = {1, 1, 1, 1, .5, .5, .5, .5, .5, .5, .5, .5};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(moved[i], want[i], 1e-6) << i;
}

}  // namespace
}  // namespace cohort::keras
