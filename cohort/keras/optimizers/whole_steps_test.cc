// SPDX-License-Identifier: Apache-2.0
//
// A step is made by all workers or by none, and a constraint that throws leaves copies equal.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/collectives/test_late_rank.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

using cohort::testing::LateRank;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;

constexpr auto kLimit = std::chrono::seconds(60);

struct OwnDescent : OptimizerBase {
  void update(const Variable& w, const Gradient& g) override {
    w.assign_sub(g.dense() * learning_rate());
  }
};

struct Made {
  std::vector<float> weights;
  int64_t iterations = 0;
  bool operator==(const Made&) const = default;
};

struct Case {
  std::string name;
  std::function<Optimizer()> make;
  bool parts_first = false;  // a step of each replica's own comes before
};

std::vector<Case> cases() {
  return {{"fused", [] { return Optimizer(Adam({.learning_rate = 0.1})); }},
          {"fused, with slots on every replica",
           [] { return Optimizer(Adam({.learning_rate = 0.1})); }, true},
          {"own", [] { return Optimizer(std::make_shared<OwnDescent>()); }}};
}

int rank_of(const Strategy& s) { return s.extended().layout().worker(); }

// Worker 1 fails behind its step, while worker 0 is late.
Made made_on(const Strategy& s, const Case& how, LateRank& late) {
  const auto scope = s.scope();
  const Variable w(ones({5}));
  const Optimizer optimizer = how.make();
  const auto apply = [&](const ApplyOptions& options) {
    optimizer.apply_gradients({{ones({5}), w}}, options);
  };
  if (how.parts_first) s.run([&] { apply({.skip_gradients_aggregation = true}); });
  try {
    s.run([&] {
      apply({});
      if (rank_of(s) == 1) throw DataLoss("[step] behind the update");
    });
  } catch (const DataLoss&) {
  }
  if (rank_of(s) == 1) late.other_has_ended();
  return {to_vector<float>(w.components().at(0).value()),
          optimizer.iterations().components().at(0).value().item<int64_t>()};
}

TEST(WholeSteps, AreMadeByAllWorkersOrByNone) {
  for (const Case& how : cases()) {
    for (const int local : {1, 2}) {
      SCOPED_TRACE(how.name);
      run_with_deadline(kLimit, [&] {
        const Workers workers(2, local);
        LateRank late(workers.job());
        const auto made = workers.run([&](const Strategy& s) { return made_on(s, how, late); });
        EXPECT_EQ(made[0].weights, made[1].weights);
        EXPECT_EQ(made[0].iterations, made[1].iterations);
        EXPECT_EQ(made[1].iterations, how.parts_first ? 2 : 1);
      });
    }
  }
}

// Whatever the variable would make of writes of all replicas.
TEST(WholeSteps, AnOwnRuleWritesTheCopyOfItsReplica) {
  for (const int local : {1, 2}) {
    run_with_deadline(kLimit, [&] {
      const auto made = Workers(2, local).run([&](const Strategy& s) {
        const auto scope = s.scope();
        const Variable w(ones({5}), {.aggregation = Aggregation::kSum});
        const Optimizer optimizer = std::make_shared<OwnDescent>();
        s.run([&] { optimizer.apply_gradients({{ones({5}), w}}); });
        return to_vector<float>(w.components().at(0).value());
      });
      const float want = 1.0F - 0.001F * static_cast<float>(2 * local);
      for (const auto& weights : made) {
        for (const float each : weights) EXPECT_FLOAT_EQ(each, want);
      }
    });
  }
}

// Has a slot, and may throw on the last of all replicas when all but the last variable are written.
struct ThrowingDescent : OptimizerBase {
  bool throws = true;
  Variable momentum;
  std::size_t last = 0;
  void on_build(std::span<const Variable> variables) override {
    momentum = add_slot(variables[0], "momentum");
    last = variables.size() - 1;
  }
  void update(const Variable& w, const Gradient& g) override {
    const ReplicaContext here = get_replica_context();
    const bool mine = !here || here.replica_id_in_sync_group() == here.num_replicas_in_sync() - 1;
    if (throws && mine && index_of(w) == last) throw InvalidArgument("[rule] cannot");
    w.assign_sub(g.dense());
    if (index_of(w) == 0) momentum.assign_add(g.dense());
  }
};

// What weights, slot and count are on every replica here, behind a step that throws and a good one.
struct Copy {
  std::size_t which;  // of a, b, momentum, iterations; 4 more behind the good step
  std::vector<float> values;
};

std::vector<Copy> copies_after_a_throwing_rule(const Strategy& s) {
  const auto scope = s.scope();
  const Variable a(ones({3})), b(ones({3}));
  const auto rule = std::make_shared<ThrowingDescent>();
  const Optimizer optimizer(rule);
  const auto step = [&] {
    s.run([&] { optimizer.apply_gradients({{ones({3}), a}, {ones({3}), b}}); });
  };
  std::vector<Copy> copies;
  std::size_t which = 0;
  const auto look = [&] {
    for (const Variable& v : {a, b, rule->momentum, optimizer.iterations()}) {
      for (const Variable& one : v.components()) {
        copies.push_back({which, to_vector<float>(one.value())});
      }
      ++which;
    }
  };
  EXPECT_THROW(step(), InvalidArgument);
  look();
  rule->throws = false;
  step();
  look();
  return copies;
}

void expect_one_good_step(const std::vector<Copy>& copies, int replicas) {
  const auto sum = static_cast<float>(replicas);
  const std::vector<float> expected = {1, 1, 0, 0, 1 - sum, 1 - sum, sum, 1};
  ASSERT_GE(copies.size(), expected.size());
  for (const Copy& copy : copies) {
    for (const float x : copy.values) EXPECT_EQ(x, expected[copy.which]) << copy.which;
  }
}

TEST(WholeSteps, ARuleThatThrowsInOneReplicaLeavesAllAsTheyWere) {
  run_with_deadline(kLimit, [&] {
    expect_one_good_step(copies_after_a_throwing_rule(get_strategy()), 1);
    for (const int replicas : {1, 2, 3}) {
      std::vector<Device> devices;
      for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
      const MirroredStrategy mirrored(devices);
      expect_one_good_step(copies_after_a_throwing_rule(mirrored), replicas);
      const CentralStorageStrategy central({.compute_devices = devices});
      expect_one_good_step(copies_after_a_throwing_rule(central), replicas);
    }
  });
}

TEST(WholeSteps, ARuleThatThrowsOnOneWorkerLeavesAllAsTheyWere) {
  for (const int local : {1, 2}) {
    run_with_deadline(kLimit, [&] {
      const auto copies = Workers(2, local).run(copies_after_a_throwing_rule);
      for (const auto& of_worker : copies) expect_one_good_step(of_worker, 2 * local);
    });
  }
}

// Halves its variable, and throws on the last of all replicas.
Tensor throwing_constraint(const Tensor& x) {
  const ReplicaContext here = get_replica_context();
  if (here.replica_id_in_sync_group() == here.num_replicas_in_sync() - 1) {
    throw InvalidArgument("[constraint] cannot");
  }
  return x * 0.5;
}

std::vector<std::vector<float>> copies_after_a_throwing_constraint(const Strategy& s,
                                                                   const Optimizer& optimizer) {
  const auto scope = s.scope();
  const Variable a(ones({3}), {.constraint = [](const Tensor& x) { return x * 0.5; }});
  const Variable b(ones({3}), {.constraint = throwing_constraint});
  EXPECT_THROW(s.run([&] {
    optimizer.apply_gradients({{ones({3}), a}, {ones({3}), b}});
  }),
               InvalidArgument);
  std::vector<std::vector<float>> copies;
  for (const Variable& v : {a, b}) {
    for (const Variable& one : v.components()) copies.push_back(to_vector<float>(one.value()));
  }
  for (const Variable& one : optimizer.iterations().components()) {
    copies.push_back(to_vector<float>(one.value().to(kFloat32)));
  }
  return copies;
}

TEST(WholeSteps, AConstraintThatThrowsOnOneWorkerLeavesAllEqual) {
  for (const Case& how : cases()) {
    for (const int local : {1, 2}) {
      SCOPED_TRACE(how.name);
      run_with_deadline(kLimit, [&] {
        const auto copies = Workers(2, local).run(
            [&](const Strategy& s) { return copies_after_a_throwing_constraint(s, how.make()); });
        EXPECT_EQ(copies[0], copies[1]);
        EXPECT_EQ(copies[0].back(), std::vector<float>{1});
      });
    }
  }
}

TEST(WholeSteps, AConstraintThatThrowsInOneReplicaLeavesCopiesEqual) {
  const MirroredStrategy s({"CPU:0", "CPU:1"});
  const auto copies = copies_after_a_throwing_constraint(s, SGD({.learning_rate = 0.1}));
  ASSERT_EQ(copies.size(), 6);
  for (const std::size_t i : {0, 2, 4}) EXPECT_EQ(copies[i], copies[i + 1]);
}

}  // namespace
}  // namespace cohort::keras
