// SPDX-License-Identifier: Apache-2.0
//
// A run that stops in the middle of an epoch and goes on in fresh objects, from a file with the
// weights, the optimizer and the position in the data, ends with the weights of one that never
// stopped: the same bits.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "cohort/checkpoint/safetensors.h"
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
        input_(data_.make_iterator()) {
    const auto scope = strategy_.scope();
    optimizer_.build(model_.trainable_variables());
  }

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

  void save(const std::string& path) {
    std::map<std::string, Tensor> tensors;
    const std::vector<Tensor> weights = model_.get_weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      tensors["model/" + std::to_string(i)] = weights[i];
    }
    const std::vector<Variable> slots = optimizer_.variables();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      tensors["optimizer/" + std::to_string(i)] = slots[i].value().clone();
    }
    const std::string position = input_.save();
    tensors["input"] = from_vector(std::vector<uint8_t>(position.begin(), position.end()),
                                   {static_cast<int64_t>(position.size())});
    save_tensors(path, tensors);
  }

  void restore(const std::string& path) {
    const auto tensors = load_tensors(path).tensors;
    std::vector<Tensor> weights = model_.get_weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = tensors.at("model/" + std::to_string(i));
    }
    model_.set_weights(weights);
    const std::vector<Variable> slots = optimizer_.variables();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].assign(tensors.at("optimizer/" + std::to_string(i)));
    }
    const std::vector<uint8_t> position = to_vector<uint8_t>(tensors.at("input"));
    input_.restore(std::string(position.begin(), position.end()));
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

class Resume : public ::testing::TestWithParam<int> {
 protected:
  Resume() {
    std::string name = (std::filesystem::temp_directory_path() / "cohort_resume_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Resume() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/checkpoint.safetensors"; }

 private:
  std::string folder_;
};

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::Values(1, 2));

TEST_P(Resume, InTheMiddleOfAnEpochGivesTheSameBits) {
  Training whole(GetParam(), 5);
  ASSERT_EQ(whole.train(kEndless), 18);
  for (const int64_t stop : {5, 9, 13}) {
    {
      Training first(GetParam(), 5);
      ASSERT_EQ(first.train(stop), stop);
      first.save(path());
    }
    Training second(GetParam(), 77);  // Other weights, another order of the rows.
    ASSERT_FALSE(same_bits(second.weights(), whole.weights()));
    second.restore(path());
    EXPECT_EQ(second.train(kEndless), 18 - stop);
    EXPECT_TRUE(same_bits(second.weights(), whole.weights())) << "stopped after " << stop;
  }
}

TEST(ResumeElsewhere, OnAnotherNumberOfReplicasTheRowsAreTheSame) {
  std::string file = (std::filesystem::temp_directory_path() / "cohort_resume_XXXXXX").string();
  const std::string folder = mkdtemp(file.data());
  Training whole(1, 5);
  whole.train(kEndless);
  Training first(2, 5);
  first.train(5);
  first.save(folder + "/checkpoint");
  Training second(4, 77);
  second.restore(folder + "/checkpoint");
  EXPECT_EQ(second.train(kEndless), 13);
  EXPECT_LE(worst_difference(second.weights(), whole.weights()), 1e-4);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cohort::proof
