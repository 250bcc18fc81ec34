// SPDX-License-Identifier: Apache-2.0
//
// One seed gives one result: fresh processes, threads that meet in any order and both schedules of
// the update end with the same bits. The program starts itself: each child trains, and prints a
// hash of its weights for every number of replicas.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sin.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "cohort/testing/deadline.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

constexpr int kProcesses = 20;
constexpr std::array kReplicas = {1, 2, 4};

// Convolution, pooling, dropout, shuffle, prefetch, and a last batch that is not full.
uint64_t train(int replicas, uint64_t seed) {
  set_seed(seed);
  const Strategy strategy = strategy_of(replicas);
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Conv2D(16, 3, {.activation = "relu"}), keras::MaxPooling2D(),
                           keras::Flatten(), keras::Dropout(0.3),
                           keras::Dense(32, {.activation = "relu"}), keras::Dropout(0.3),
                           keras::Dense(10)});
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const Data data = ten_classes({330, kPixels, kPixels, 1});
  model.fit(data.dataset().shuffle(330).batch(32).prefetch(),
            {.epochs = 3, .verbose = keras::Verbose::kSilent});
  return hash_of(model.get_weights());
}

// What a child does. `first` rotates the order: no run may depend on those before it.
int run_child(int first, uint64_t seed) {
  for (std::size_t i = 0; i < kReplicas.size(); ++i) {
    const int replicas = kReplicas[(static_cast<std::size_t>(first) + i) % kReplicas.size()];
    std::printf("%d %016llx\n", replicas, static_cast<unsigned long long>(train(replicas, seed)));
  }
  return 0;
}

// A child and the pipe that it writes into.
struct Child {
  pid_t id = -1;
  FILE* output = nullptr;
};

Child start(const std::string& schedule, int first, uint64_t seed) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string arguments[] = {"same_bits_test", "--train", std::to_string(first),
                             std::to_string(seed)};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), nullptr};
  ::setenv("COHORT_UPDATE_SCHEDULE", schedule.c_str(), 1);
  // How LibTorch's threads wait differs, too.
  ::setenv("OMP_WAIT_POLICY", schedule == "pull" ? "passive" : "active", 1);
  Child child;
  const int failed = posix_spawn(&child.id, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) throw std::runtime_error(std::strerror(failed));
  child.output = ::fdopen(ends[0], "r");
  return child;
}

// replicas -> hash, as the child wrote them.
std::map<int, std::string> finish(const Child& child) {
  std::map<int, std::string> hashes;
  int replicas = 0;
  char hash[32];
  while (std::fscanf(child.output, "%d %31s", &replicas, hash) == 2) hashes[replicas] = hash;
  std::fclose(child.output);
  int status = 0;
  ::waitpid(child.id, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a child ended with " << status;
  EXPECT_EQ(hashes.size(), kReplicas.size());
  return hashes;
}

TEST(SameBits, InFreshProcessesUnderBothSchedules) {
  testing::run_with_deadline(std::chrono::seconds(110), [] {
    std::map<int, std::set<std::string>> seen;
    for (int i = 0; i < kProcesses; i += 2) {  // two at a time, one of each schedule
      const std::array pair = {start("sharded", i, 42), start("pull", i + 1, 42)};
      for (const Child& child : pair) {
        for (const auto& [replicas, hash] : finish(child)) seen[replicas].insert(hash);
      }
    }
    for (int replicas : kReplicas) {
      EXPECT_EQ(seen[replicas].size(), 1u)
          << replicas << " replicas: " << ::testing::PrintToString(seen[replicas]);
    }
    // The hash sees what it should: another seed is another result.
    for (const auto& [replicas, hash] : finish(start("sharded", 0, 43))) {
      EXPECT_EQ(seen[replicas].count(hash), 0u) << replicas;
    }
  });
}

// Products and updates large enough for several threads; what differs is only who computes a row.
TEST(SameBits, OfDenseLayersForAnyNumberOfIntraOpThreads) {
  const auto weights_after_training = [](int threads) {
    set_seed(5);
    const Strategy strategy = OneDeviceStrategy("CPU:0", {.intra_op_threads = threads});
    const auto scope = strategy.scope();
    keras::Sequential model({keras::Dense(1024, {.activation = "relu"})});
    const keras::Optimizer adam = keras::Adam();
    const Tensor x = at::sin(at::arange(64 * 512, kFloat32)).reshape({64, 512});
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        EXPECT_EQ(at::get_num_threads(), threads);
        GradientTape tape;
        const Tensor loss = at::mean(model(x, {.training = true}));
        adam.apply_gradients(tape.gradient(loss, model.trainable_variables()));
      });
    }
    return hash_of(model.get_weights());
  };
  const uint64_t expected = weights_after_training(1);
  for (const int threads : {1, 2, 3, 5}) {
    EXPECT_EQ(weights_after_training(threads), expected) << threads;
  }
}

}  // namespace
}  // namespace cohort::proof

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--train") == 0) {
    return cohort::proof::run_child(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
