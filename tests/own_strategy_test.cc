// SPDX-License-Identifier: Apache-2.0
//
// Strategies of programs, written with public headers alone.
#include <gtest/gtest.h>

#include "cohort/cohort.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

const std::vector<Device> kThree = {"CPU:0", "CPU:1", "CPU:2"};

/// Steps by the sign that most replicas' gradients have, as signSGD with a majority vote does.
class MajorityVote : public LocalStrategyExtended {
 public:
  explicit MajorityVote(std::vector<Device> devices)
      : LocalStrategyExtended({.name = "MajorityVote", .devices = std::move(devices)}) {}
  std::vector<int64_t> iterations;

 protected:
  void do_apply_gradients(const Gradients& gradients, OptimizerStep& step) override {
    const ReplicaContext replica = get_replica_context();
    if (replica.replica_id_in_sync_group() == 0) iterations.push_back(step.iterations());
    std::vector<GradientAndVariable> votes(gradients.begin(), gradients.end());
    for (auto& [gradient, variable] : votes) {
      gradient = replica.all_reduce(ReduceOp::kSum, gradient.as_tensor().sign()).sign();
    }
    step.apply_alone(votes);
  }
};

/// Replica r's gradients of w [3] are the row r.
void step_on(const Strategy& strategy, const Variable& w, const keras::Optimizer& optimizer,
             const Tensor& rows) {
  strategy.run([&] {
    GradientTape tape;
    const Tensor mine = rows[get_replica_context().replica_id_in_sync_group()];
    const Tensor loss = (w.value() * mine).sum();
    optimizer.apply_gradients(tape.gradient(loss, {w}));
  });
}

TEST(OwnStrategy, DecidesHowGradientsUpdate) {
  const auto vote = std::make_shared<MajorityVote>(kThree);
  const Strategy strategy(vote);
  const auto scope = strategy.scope();
  const Variable w(zeros({3}), {.name = "w"});
  const keras::SGD optimizer({.learning_rate = 1.0});
  // Two of three say plus for the first element, minus for the second; the third is a draw.
  const Tensor rows = tensor({1, -5, 2, 3, 9, -7, -100, -1, 0}).reshape({3, 3});
  for (int i = 0; i < 2; ++i) step_on(strategy, w, optimizer, rows);
  for (const Variable& copy : w.components()) {
    EXPECT_EQ(to_vector<float>(copy.value()), (std::vector<float>{-2, 2, 0}));
  }
  EXPECT_EQ(vote->iterations, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 2);
}

TEST(OwnStrategy, IsAskedOncePerUpdateWhereGradientsAccumulate) {
  const auto vote = std::make_shared<MajorityVote>(kThree);
  const Strategy strategy(vote);
  const auto scope = strategy.scope();
  const Variable w(zeros({3}), {.name = "w"});
  const keras::SGD optimizer({.learning_rate = 1.0, .gradient_accumulation_steps = 2});
  for (int i = 0; i < 4; ++i) step_on(strategy, w, optimizer, ones({3, 3}));
  EXPECT_EQ(to_vector<float>(w.value()), (std::vector<float>{-2, -2, -2}));
  EXPECT_EQ(vote->iterations, (std::vector<int64_t>{0, 1}));
}

TEST(OwnStrategy, AReplicaThatFailsLeavesItUsable) {
  const Strategy strategy(std::make_shared<MajorityVote>(kThree));
  const auto scope = strategy.scope();
  const Variable w(zeros({3}), {.name = "w"});
  const keras::SGD optimizer({.learning_rate = 1.0});
  step_on(strategy, w, optimizer, ones({3, 3}));
  testing::expect_error<InvalidArgument>({"mine"}, [&] {
    strategy.run([&] {
      GradientTape tape;
      const Tensor loss = w.value().sum();
      const Gradients gradients = tape.gradient(loss, {w});
      if (get_replica_context().replica_id_in_sync_group() == 1) throw InvalidArgument("mine");
      optimizer.apply_gradients(gradients);
    });
  });
  step_on(strategy, w, optimizer, ones({3, 3}));
  for (const Variable& copy : w.components()) {
    EXPECT_EQ(to_vector<float>(copy.value()), (std::vector<float>{-2, -2, -2}));
  }
}

TEST(OwnStrategy, GradientsThatTheProgramHasReducedAreNotItsBusiness) {
  const auto vote = std::make_shared<MajorityVote>(kThree);
  const Strategy strategy(vote);
  const auto scope = strategy.scope();
  const Variable w(zeros({}), {.name = "w"});
  const keras::SGD optimizer({.learning_rate = 1.0});
  strategy.run([&] {
    optimizer.apply_gradients({{scalar(5.0), w}}, {.skip_gradients_aggregation = true});
  });
  EXPECT_EQ(w.value().item<float>(), -5);
  EXPECT_TRUE(vote->iterations.empty());
}

/// Variables that replicas share cannot be updated by one of them.
class AloneOnShared : public LocalStrategyExtended {
 public:
  AloneOnShared()
      : LocalStrategyExtended(
            {.name = "AloneOnShared", .devices = kThree, .parameter_device = Device("CPU:0")}) {}

 protected:
  void do_apply_gradients(const Gradients& gradients, OptimizerStep& step) override {
    step.apply_alone(gradients);
  }
};

TEST(OwnStrategy, ReplicasThatShareACopyCannotUpdateItAlone) {
  const Strategy strategy(std::make_shared<AloneOnShared>());
  const auto scope = strategy.scope();
  const Variable w(zeros({3}), {.name = "w"});
  const keras::SGD optimizer({.learning_rate = 1.0});
  testing::expect_error<Unimplemented>({"all replicas share one copy"}, [&] {
    step_on(strategy, w, optimizer, ones({3, 3}));
  });
  EXPECT_EQ(to_vector<float>(w.value()), (std::vector<float>{0, 0, 0}));
}

/// Every variable is told apart by what it is made with.
class Renaming : public LocalStrategyExtended {
 public:
  Renaming()
      : LocalStrategyExtended({.name = "Renaming",
                               .devices = {"CPU:0", "CPU:1"},
                               .variable_options = [](const VariableOptions& asked) {
                                 VariableOptions options = asked;
                                 if (*asked.trainable) {
                                   options.synchronization = Synchronization::kOnRead;
                                   options.aggregation = Aggregation::kMean;
                                 }
                                 options.name += *asked.trainable ? "/trained" : "/kept";
                                 return options;
                               }}) {}
};

TEST(OwnStrategy, DecidesWhatVariablesAreMadeWith) {
  const Strategy strategy(std::make_shared<Renaming>());
  const auto scope = strategy.scope();
  const Variable weight(zeros({2}), {.name = "w"});
  const Variable count(full({}, 3, kInt64), {.name = "n"});
  EXPECT_EQ(weight.name(), "w/trained");
  EXPECT_EQ(weight.synchronization(), Synchronization::kOnRead);
  EXPECT_TRUE(weight.trainable());
  EXPECT_EQ(count.name(), "n/kept");
  EXPECT_EQ(count.synchronization(), Synchronization::kOnWrite);
  strategy.run([&] { weight.assign(full({2}, get_replica_context().replica_id_in_sync_group())); });
  EXPECT_EQ(to_vector<float>(weight.value()), (std::vector<float>{0.5, 0.5}));
}

}  // namespace
}  // namespace cohort
