// SPDX-License-Identifier: Apache-2.0
//
// minimize() of workers that share no memory: behind a turn's gradients its new parameters travel,
// too, while the backward pass still runs, and a step is whole or was not.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/optimizers/test_workers.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::internal::collectives::CallSignature;
using cohort::internal::collectives::Carrier;
using cohort::internal::collectives::Collective;
using cohort::internal::collectives::ExchangeKey;
using Hook = std::function<void(int layer)>;

constexpr int kLayers = 7;

/// Layers in a row, each a region of its own.
class Chain {
 public:
  explicit Chain(const Strategy& strategy) : strategy_(strategy), optimizer_(Adam({0.01})) {
    const auto scope = strategy_.scope();
    for (int k = 0; k < kLayers; ++k) {
      layers_.push_back(Variable((arange(64, kFloat32) * (0.7 + k)).sin().mul(0.4).reshape({8, 8}),
                                 {.name = "layer" + std::to_string(k)}));
    }
  }
  /// `at(layer)`: before the gradient of that layer, behind those of all layers that follow.
  void step(int number, bool minimizes, const Hook& at = {}) {
    strategy_.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      GradientTape tape;
      Tensor x = ((arange(32, kFloat32) + 11 * id + 5 * number) * 0.31).cos().reshape({4, 8});
      for (int k = 0; k < kLayers; ++k) {
        x = x.matmul(layers_[static_cast<std::size_t>(k)].value()).tanh();
        if (at) x.register_hook([&at, k](const Tensor&) { at(k); });
      }
      const Tensor loss = x.pow(2).mean();
      minimizes ? optimizer_.minimize(loss, layers_, tape)
                : optimizer_.apply_gradients(tape.gradient(loss, layers_));
    });
  }
  Numbers numbers() const { return numbers_of(layers_); }

 private:
  const Strategy strategy_;
  const Optimizer optimizer_;
  std::vector<Variable> layers_;
};

Numbers trained(const Strategy& strategy, bool minimizes, int steps) {
  Chain chain(strategy);
  for (int step = 0; step < steps; ++step) chain.step(step, minimizes);
  return chain.numbers();
}

/// What worker 0 has sent so far.
struct Sent {
  std::atomic<int> gradients = 0;
  std::atomic<int> parameters = 0;
  void count(WorkersOfTest& job) {
    job.job.before_each(0, [this](const ExchangeKey&, const CallSignature& signature) {
      if (signature.collective == Collective::kAllToAll) ++gradients;
      if (signature.collective == Collective::kAllGather) ++parameters;
    });
  }
};

// The workers' passes go on side by side, so that what one waits for has been sent.
TEST(MinimizeAhead, ParametersFollowTheGradients) {
  WorkersOfTest job(2, 1, kEachAlone);
  Sent sent;
  sent.count(job);
  std::barrier side_by_side(2);
  std::vector<int> gradients(kLayers);
  std::vector<int> parameters(kLayers);
  job.each([&](const Strategy& s) {
    const bool counts = s.extended().layout().worker() == 0;
    Chain chain(s);
    for (int step = 0; step < 3; ++step) {
      if (counts) sent.gradients = sent.parameters = 0;
      chain.step(step, true, [&](int layer) {
        side_by_side.arrive_and_wait();
        if (!counts || step != 2) return;
        gradients[static_cast<std::size_t>(layer)] = sent.gradients;
        parameters[static_cast<std::size_t>(layer)] = sent.parameters;
      });
    }
  });
  constexpr int kBuckets = 2;  // a worker has 128 of a layer's 256 bytes
  for (int layer = 0; layer < kLayers; ++layer) {
    const int left = kLayers - 1 - layer;
    const auto at = static_cast<std::size_t>(layer);
    EXPECT_EQ(gradients[at], kBuckets * left) << layer;
    EXPECT_GE(parameters[at], kBuckets * (left - 1)) << layer;
    EXPECT_LE(parameters[at], kBuckets * left) << layer;
  }
}

// No gradient becomes final while parameters leave, and nobody waits.
TEST(MinimizeAhead, BytesMoveWhileALayerComputes) {
  constexpr int kAllButOne = 2 * (kLayers - 1);
  constexpr std::chrono::seconds kLimit{30};
  for (const Carrier carrier : {Carrier::kThreads, Carrier::kTcp}) {
    WorkersOfTest job(2, 1, kEachAlone, carrier);
    Sent sent;
    sent.count(job);
    job.each([&](const Strategy& s) {
      Chain chain(s);
      for (int step = 0; step < 4; ++step) {
        chain.step(step, true, [&](int layer) {
          if (step == 3 && layer == kLayers - 1) sent.parameters = 0;
          if (layer != 0) return;
          const auto begin = std::chrono::steady_clock::now();
          const auto goes_on = [&] {
            const auto since = std::chrono::steady_clock::now() - begin;
            return step < 3 ? since < std::chrono::milliseconds(10)
                            : sent.parameters < kAllButOne && since < kLimit;
          };
          while (goes_on()) std::this_thread::yield();
        });
      }
    });
    EXPECT_GE(sent.parameters, kAllButOne);
  }
}

TEST(MinimizeAhead, WorkersThatShareMemoryReadParametersWhereTheyAre) {
  WorkersOfTest job(2, 1, kEachAlone, Carrier::kSharedMemory);
  Sent sent;
  sent.count(job);
  int in_pass = 0;
  job.each([&](const Strategy& s) {
    const bool counts = s.extended().layout().worker() == 0;
    Chain chain(s);
    for (int step = 0; step < 3; ++step) {
      if (counts) sent.parameters = 0;
      chain.step(step, true, [&](int) { in_pass += counts ? sent.parameters.load() : 0; });
    }
  });
  EXPECT_EQ(in_pass, 0);
}

TEST(MinimizeAhead, HasTheBitsOfApplyGradientsAndOfOneProcess) {
  for (const int workers : {2, 3}) {
    for (const Carrier carrier : {Carrier::kThreads, Carrier::kTcp}) {
      const Numbers expected = trained(MirroredStrategy(devices_of(workers)), false, 6);
      for (const int64_t bytes : {kEachAlone, int64_t{256}, int64_t{1024}, int64_t{0}}) {
        WorkersOfTest job(workers, 1, bytes, carrier);
        job.each([&](const Strategy& s) { EXPECT_EQ(trained(s, true, 6), expected) << bytes; });
      }
    }
  }
}

// Parameters and slots of some turns have been made by then, beside the live ones.
TEST(MinimizeAhead, AFailureBehindThemUndoesTheStepEverywhere) {
  for (const Carrier carrier : {Carrier::kThreads, Carrier::kTcp}) {
    WorkersOfTest job(2, 1, kEachAlone, carrier);
    std::vector<std::unique_ptr<Chain>> chains(2);
    const auto of = [&](const Strategy& s) -> Chain& {
      auto& mine = chains[static_cast<std::size_t>(s.extended().layout().worker())];
      if (!mine) mine = std::make_unique<Chain>(s);
      return *mine;
    };
    job.each([&](const Strategy& s) {
      for (int step = 0; step < 2; ++step) of(s).step(step, true);
    });
    const Numbers before = chains[0]->numbers();
    for (const int failing : {0, 1}) {
      std::barrier side_by_side(2);
      Sent sent;
      sent.count(job);
      const auto errors = job.try_each([&](const Strategy& s) {
        const int worker = s.extended().layout().worker();
        of(s).step(2, true, [&](int layer) {
          if (layer > 1) side_by_side.arrive_and_wait();
          if (layer == 1 && worker == failing) throw std::runtime_error("no memory for layer 1");
        });
      });
      EXPECT_GE(sent.parameters, 4) << "or nothing was ahead";
      for (const std::exception_ptr& error : errors) {
        const std::string text = cohort::testing::error_text([&] {
          if (error) std::rethrow_exception(error);
        });
        EXPECT_NE(text.find("no memory for layer 1"), std::string::npos) << text;
      }
      for (const auto& chain : chains) EXPECT_EQ(chain->numbers(), before);
      job.job.before_each(0, {});
    }
    // As if nothing had happened.
    job.each([&](const Strategy& s) {
      for (int step = 2; step < 4; ++step) of(s).step(step, true);
      EXPECT_EQ(of(s).numbers(), trained(s, true, 4));
    });
  }
}

}  // namespace
}  // namespace cohort::keras
