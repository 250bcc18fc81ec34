// SPDX-License-Identifier: Apache-2.0
//
// What models of several workers share out: rows, losses and dropout go by the replicas of all
// workers, as if one worker had them all.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "cohort/keras/compiled_model.h"
#include "cohort/keras/keras.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;
using Numbers = std::vector<double>;
using PerReplicaNumbers = std::vector<std::vector<Numbers>>;  // [replica][step]

constexpr int kWorkers = 2;

MirroredStrategy mirrored(int replicas) {
  std::vector<Device> devices;
  for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
  return MirroredStrategy(devices);
}

/// Two outputs of one weight each, through dropout; writes down what each replica's steps see.
/// Updates nothing: that needs the other workers.
class Recorder final : public Model {
 public:
  explicit Recorder(int replicas) : seen(static_cast<std::size_t>(replicas)) {}
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return dropout_(dense_(x, args), args);
  }
  Logs train_step(const Element& batch) override {
    const auto [x, y, weight] = unpack_x_y_sample_weight(batch);
    const Tensor y_pred = (*this)(x, {.training = true});
    const Tensor loss = compute_loss(x, y, y_pred, weight);
    Numbers step = to_vector<double>(x);  // whose rows they are
    step.push_back(
        static_cast<double>(cohort::internal::strategy::ReplicaStep::running()->global_rows));
    step.push_back(static_cast<double>(x.size(0)));
    step.push_back(loss.item<double>());
    const auto outputs = to_vector<double>(y_pred);  // zeros where dropout was
    step.insert(step.end(), outputs.begin(), outputs.end());
    if (weight.defined()) step.push_back(weight.sum().item<double>());
    seen[static_cast<std::size_t>(current_replica())].push_back(step);
    return {};
  }
  std::string class_name() const override { return "Recorder"; }

  PerReplicaNumbers seen;

 private:
  Layer dense_ = add("dense", Dense(2, {.kernel_regularizer = L2(0.5)}));
  Layer dropout_ = add("dropout", Dropout(0.5));
};

data::Dataset rows_of(int64_t count) {
  const Tensor x = arange(count).to(kFloat32).reshape({count, 1});
  return data::Dataset::from_tensor_slices({x, x.remainder(2)});
}

/// The rows in batches of 8, each worker's in a row, as one worker with all replicas has them.
void fit_on(Model& model, int64_t rows, FitOptions options) {
  options.steps_per_epoch = (rows + 7) / 8;
  options.verbose = Verbose::kSilent;
  model.fit(
      model.strategy().distribute_dataset(rows_of(rows).batch(8), {.contiguous_shards = true}),
      options);
}

class ModelsOfWorkers : public ::testing::TestWithParam<int> {
 protected:
  int local() const { return GetParam(); }

  /// The same on two workers as on one with as many replicas, replica by replica.
  template <class Train>
  PerReplicaNumbers expect_as_one_worker(const Train& train) {
    const auto play = [&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Recorder model(strategy.extended().num_local_replicas());
      model.compile({.optimizer = SGD(), .loss = MeanSquaredError()});
      train(model);
      return model.seen;
    };
    PerReplicaNumbers joined, one;
    run_with_deadline(std::chrono::seconds(60), [&] {
      set_seed(5);
      const Workers workers(kWorkers, local());
      for (const PerReplicaNumbers& own : workers.run(play)) {
        joined.insert(joined.end(), own.begin(), own.end());
      }
      set_seed(5);
      one = play(mirrored(kWorkers * local()));
    });
    EXPECT_EQ(joined, one);
    return joined;
  }
};

TEST_P(ModelsOfWorkers, FitSplitsBatchesAndScalesLossesByTheReplicasOfAll) {
  // 10 rows in batches of 8 and 2: the second is uneven, with four replicas two have none.
  const auto seen = expect_as_one_worker([](Model& model) { fit_on(model, 10, {.epochs = 2}); });
  const auto replicas = static_cast<std::size_t>(kWorkers * local());
  ASSERT_EQ(seen.size(), replicas);
  for (const std::vector<Numbers>& steps : seen) {
    ASSERT_EQ(steps.size(), 4U);
    const std::size_t rows = 8 / replicas;
    EXPECT_EQ(steps[0][rows], 8);  // of the batch over all workers
    EXPECT_EQ(steps[0][rows + 1], static_cast<double>(rows));
  }
}

TEST_P(ModelsOfWorkers, ClassWeightsAndTrainOnBatch) {
  expect_as_one_worker([](Model& model) {
    fit_on(model, 8, {.class_weight = {{0, 1.0}, {1, 3.0}}});
  });
  expect_as_one_worker([](Model& model) {
    const Tensor x = arange(6).to(kFloat32).reshape({6, 1});
    model.train_on_batch(x, x);
  });
}

TEST_P(ModelsOfWorkers, LossesOfAMeanAreRefusedInLoopsOverAllReplicas) {
  const Workers workers(kWorkers, local());
  run_with_deadline(std::chrono::seconds(60), [&] {
    expect_error<InvalidArgument>({"expected reduction kNone or kSum", "a custom loop over"}, [&] {
      workers[0].run([] { return MeanSquaredError()(ones({1, 1}), ones({1, 1})); });
    });
  });
}

// With nobody to carry it to the other workers.
TEST_P(ModelsOfWorkers, TrainingNeedsTheOtherWorkers) {
  const Strategy alone = Workers::alone(0, kWorkers, local());
  run_with_deadline(std::chrono::seconds(60), [&] {
    const auto scope = alone.scope();
    Sequential model({InputLayer({1}), Dense(1)});
    model.compile({.optimizer = SGD(), .loss = MeanSquaredError()});
    const Tensor x = ones({4, 1});
    expect_error<Unimplemented>({"[train_on_batch]", "got worker 0 of 2"},
                                [&] { model.train_on_batch(x, x); });
    expect_error<Unimplemented>({"[predict]", "made without a communicator"}, [&] {
      model.predict(data::Dataset::from_tensor_slices(x).batch(4));
    });
    const Optimizer optimizer = SGD();
    optimizer.build(model.trainable_variables());
    expect_error<Unimplemented>({"[optimizer.apply_gradients]", "got worker 0 of 2"}, [&] {
      alone.run([&] {
        optimizer.apply_gradients(
            std::vector<GradientAndVariable>{{ones({1, 1}), model.trainable_variables()[0]}});
      });
    });
  });
}

INSTANTIATE_TEST_SUITE_P(LocalReplicas, ModelsOfWorkers, ::testing::Values(1, 2));

}  // namespace
}  // namespace cohort::keras
