// SPDX-License-Identifier: Apache-2.0
//
// A run that stops in the middle of an epoch and goes on in fresh objects, from a checkpoint of the
// model, the optimizer and the position in the data, ends with the weights of one that never
// stopped: the same bits.
#include <gtest/gtest.h>

#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/test_objects.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

constexpr int64_t kRows = 100;  // 9 batches an epoch, the last one of 4 rows
constexpr int64_t kBatch = 12;
constexpr int kEpochs = 2;
constexpr int64_t kEndless = 1 << 20;

/// All that a program makes when it starts.
class Training {
 public:
  Training(int replicas, uint64_t seed)
      : strategy_(strategy_of(replicas)),
        model_(make_model(strategy_, seed)),
        data_(strategy_.distribute_dataset(batches())),
        input_(data_.make_iterator()) {}

  /// At most so many steps; how many there were.
  int64_t train(int64_t steps) {
    int64_t done = 0;
    for (; done < steps; ++done) {
      const auto batch = input_.next();
      if (!batch) break;
      int64_t rows = 0;
      for (const Element& part : *batch) rows += part.rows();
      strategy_.run([&](const Tensor& x, const Tensor& y) { step(x, y, rows); }, *batch);
    }
    return done;
  }

  Checkpoint checkpoint() const {
    return Checkpoint({{"model", model_}, {"optimizer", optimizer_}, {"input", input_}});
  }

  std::vector<Tensor> weights() const { return model_.get_weights(); }

 private:
  static keras::Sequential make_model(const Strategy& strategy, uint64_t seed) {
    set_seed(seed);
    const auto scope = strategy.scope();
    return keras::Sequential(mlp());
  }

  /// Shuffled anew in every epoch, scaled by threads, and read ahead.
  static Dataset batches() {
    const auto scale = [](const Tensor& x, const Tensor& y) { return std::tuple(x * 0.5, y); };
    return ten_classes({kRows, kFeatures})
        .dataset()
        .shuffle(64)
        .map(scale, {.parallel_calls = 2})
        .batch(kBatch)
        .repeat(kEpochs)
        .prefetch(2);
  }

  void step(const Tensor& x, const Tensor& y, int64_t rows) {
    GradientTape tape;
    const Tensor loss =
        compute_average_loss(loss_(y, model_(x, {.training = true})), {.global_batch_size = rows});
    optimizer_.apply_gradients(tape.gradient(loss, model_.trainable_variables()));
  }

  const Strategy strategy_;
  keras::Sequential model_;
  const keras::Optimizer optimizer_ = keras::Adam({.learning_rate = 0.01});
  const keras::SparseCategoricalCrossentropy loss_{
      {.from_logits = true, .reduction = keras::Reduction::kNone}};
  const DistributedDataset data_;
  DistributedIterator input_;
};

class Resume : public cohort::testing::FolderTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::Values(1, 2));

TEST_P(Resume, InTheMiddleOfAnEpochGivesTheSameBits) {
  Training whole(GetParam(), 5);
  ASSERT_EQ(whole.train(kEndless), 18);
  for (const int64_t stop : {5, 9, 13}) {
    {
      Training first(GetParam(), 5);
      ASSERT_EQ(first.train(stop), stop);
      first.checkpoint().save(path("x"));
    }
    Training second(GetParam(), 77);  // Other weights, another order of the rows.
    ASSERT_FALSE(same_bits(second.weights(), whole.weights()));
    second.checkpoint().restore(path("x"));
    EXPECT_EQ(second.train(kEndless), 18 - stop);
    EXPECT_TRUE(same_bits(second.weights(), whole.weights())) << "stopped after " << stop;
  }
}

TEST_P(Resume, FromTheNewestThatIsWhole) {
  Training whole(GetParam(), 5);
  whole.train(kEndless);
  {
    Training first(GetParam(), 5);
    CheckpointManager manager(first.checkpoint(), folder_, {.max_to_keep = 3, .background = true});
    for (int i = 0; i < 5; ++i) {
      first.train(2);
      manager.save();
    }
  }
  cohort::testing::damage(cohort::testing::shard_of(path("ckpt-5")));
  Training second(GetParam(), 77);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(CheckpointManager(second.checkpoint(), folder_).restore_latest());
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(second.train(kEndless), 18 - 8);
  EXPECT_TRUE(same_bits(second.weights(), whole.weights()));
}

TEST_P(Resume, OnAnotherNumberOfReplicasTheRowsAreTheSame) {
  Training whole(1, 5);
  whole.train(kEndless);
  for (const int replicas : {1, 2, 4}) {
    Training first(GetParam(), 5);
    first.train(5);
    first.checkpoint().save(path("x"));
    Training second(replicas, 77);
    second.checkpoint().restore(path("x"));
    EXPECT_EQ(second.train(kEndless), 13);
    EXPECT_LE(worst_difference(second.weights(), whole.weights()), 1e-4) << replicas;
  }
}

}  // namespace
}  // namespace cohort::proof
