// SPDX-License-Identifier: Apache-2.0
//
// minimize() of several workers: gradients travel while the backward pass still runs, the numbers
// are those of apply_gradients() and of one process, and a step is whole or was not.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/sanitizers.h"
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

/// What the loss of a replica's step is made of.
struct Case {
  std::string name;
  bool uses_twice = false;      ///< The middle one.
  bool leaves_out = false;      ///< One that no loss depends on.
  bool some_leave_out = false;  ///< One that replica 0's loss does not depend on.
  bool looks_up = false;        ///< Rows of a table.
  bool looks_up_and_multiplies = false;
  int looks_up_only_at = -1;  ///< The step in which a matrix brings rows alone.
  bool reduces = false;       ///< A collective in the pass,
  int reduces_at = -1;        ///< or in that of one step.
  int hook_at = -1;           ///< That changes a gradient.
  int lacks_at = -1;          ///< The step that lacks one that every other loss depends on,
  int some_lack_at = -1;      ///< or whose loss on replica 0 does.
  int rate_at = -1;           ///< A hook changes the learning rate while the pass goes on.
};

std::vector<Case> cases() {
  return {{.name = "plain"},
          {.name = "twice", .uses_twice = true},
          {.name = "left out", .leaves_out = true},
          {.name = "left out by some", .some_leave_out = true},
          {.name = "rows", .looks_up = true},
          {.name = "rows and whole", .looks_up = true, .looks_up_and_multiplies = true},
          {.name = "collective", .some_leave_out = true, .reduces = true},
          {.name = "hook", .hook_at = 0},
          {.name = "hook later", .hook_at = 2},
          {.name = "left out later", .lacks_at = 2},
          {.name = "left out by some later", .some_lack_at = 2},
          {.name = "another rate", .rate_at = 2},
          {.name = "rows in one step", .looks_up_only_at = 2},
          {.name = "collective in one step", .reduces_at = 2}};
}

/// A model with layers of Keras's and plain arithmetic.
class Program {
 public:
  Program(const Strategy& strategy, Case what, Optimizer by = Adam({.learning_rate = 0.01}))
      : strategy_(strategy), case_(std::move(what)), optimizer_(std::move(by)) {
    const auto scope = strategy_.scope();
    const auto make = [](const char* name, Shape shape) {
      const int64_t size = numel_of(shape);
      return Variable((arange(size, kFloat32) * 0.7).sin().mul(0.3).reshape(shape), {.name = name});
    };
    variables_ = {make("first", {6, 40}), make("middle", {40, 40}), make("table", {50, 40}),
                  make("seldom", {33}), make("last", {40, 1})};
  }

  /// One step on every local replica. `in_pass(replica)` is called by the backward pass when it
  /// comes to the first variable, behind all others.
  void step(int number, bool minimizes, const std::function<void(int)>& in_pass = {}) {
    strategy_.run([&] {
      const ReplicaContext context = get_replica_context();
      const int id = context.replica_id_in_sync_group();
      if (case_.hook_at == number) {
        variables_[1].value().register_hook([](const Tensor& g) { return g * 2; });
      }
      GradientTape tape;
      Tensor first = matmul(inputs(id, number), variables_[0].value());
      if (in_pass) {
        first.register_hook([&in_pass, id](const Tensor&) { in_pass(id); });
      }
      if (case_.rate_at == number) {
        first.register_hook([&](const Tensor&) { optimizer_.set_learning_rate(0.03); });
      }
      const Tensor loss = rest(first.tanh(), id, number, context);
      if (minimizes) {
        optimizer_.minimize(loss, variables_, tape);
      } else {
        optimizer_.apply_gradients(tape.gradient(loss, variables_));
      }
    });
  }
  Numbers numbers() const {
    Numbers out;
    for (const Variable& v : variables_) {
      for (const Variable& part : v.components()) {
        for (const double x : to_vector<double>(part.value().to(kFloat64))) out.push_back(x);
        if (&part == &v.components().front()) continue;
        EXPECT_TRUE(part.value().equal(v.components().front().value())) << v.name();
      }
    }
    return out;
  }
  Numbers of_one_copy() const { return numbers_of(variables_); }

 private:
  static Tensor matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
  static int64_t numel_of(const Shape& shape) {
    int64_t out = 1;
    for (const int64_t size : shape) out *= size;
    return out;
  }
  static Tensor inputs(int id, int number) {
    return ((arange(24, kFloat32) + 11 * id + 5 * number) * 0.31).cos().reshape({4, 6});
  }
  Tensor rest(Tensor x, int id, int number, const ReplicaContext& context) const {
    x = matmul(x, variables_[1].value());
    if (case_.uses_twice) x = matmul(x.tanh(), variables_[1].value());
    const bool looks_up = case_.looks_up || case_.looks_up_only_at == number;
    if (looks_up) x = x + embedding_lookup(variables_[2], ids(id));
    if (!looks_up || case_.looks_up_and_multiplies) {
      x = x + matmul(x, variables_[2].value().slice(0, 0, 40));
    }
    if (case_.reduces || case_.reduces_at == number) x = x * context.all_reduce(ReduceOp::kMean, x);
    Tensor out = matmul(x.tanh(), variables_[4].value()).pow(2).mean();
    const bool lacks = case_.leaves_out || case_.lacks_at == number;
    const bool some_lack = case_.some_leave_out || case_.some_lack_at == number;
    const bool has_seldom = !lacks && !(some_lack && id == 0);
    return has_seldom ? out + variables_[3].value().pow(2).mean() : out;
  }
  static Tensor ids(int id) { return tensor({1.0 + id, 7.0, 7.0, 49.0 - id}).to(kInt64); }

  const Strategy strategy_;
  const Case case_;
  const Optimizer optimizer_;
  std::vector<Variable> variables_;
};

constexpr int kSteps = 4;

Numbers trained(const Strategy& strategy, const Case& what, bool minimizes) {
  Program program(strategy, what);
  for (int step = 0; step < kSteps; ++step) program.step(step, minimizes);
  return program.of_one_copy();
}

struct Layout {
  int workers;
  int local;
  Carrier carrier;
};
class Minimize : public ::testing::TestWithParam<Layout> {};

TEST_P(Minimize, HasTheBitsOfApplyGradientsAndOfOneProcess) {
  const Layout layout = GetParam();
  for (const Case& what : cases()) {
    SCOPED_TRACE(what.name);
    const Numbers one_process =
        trained(MirroredStrategy(devices_of(layout.workers * layout.local)), what, false);
    WorkersOfTest plain(layout.workers, layout.local, 0, layout.carrier);
    Numbers applied;
    plain.each([&](const Strategy& s) {
      const Numbers got = trained(s, what, false);
      if (s.extended().layout().worker() == 0) applied = got;
    });
    if (layout.local == 1) {
      EXPECT_EQ(applied, one_process);
    }
    for (const int64_t bytes : {kEachAlone, int64_t{4000}, int64_t{0}}) {
      if (COHORT_UNDER_SANITIZER != 0 && bytes != kEachAlone) continue;
      WorkersOfTest job(layout.workers, layout.local, bytes, layout.carrier);
      job.each([&](const Strategy& s) { EXPECT_EQ(trained(s, what, true), applied) << bytes; });
    }
  }
}

// What leaves early is rounded as what leaves late.
TEST_P(Minimize, RoundedGradientsHaveTheBitsOfApplyGradients) {
  const Layout layout = GetParam();
  for (const Case& what : cases()) {
    if (COHORT_UNDER_SANITIZER != 0 && !what.looks_up && !what.some_leave_out) continue;
    SCOPED_TRACE(what.name);
    WorkersOfTest whole(layout.workers, layout.local, 0, layout.carrier,
                        /*bfloat16_gradients=*/true);
    WorkersOfTest pieces(layout.workers, layout.local, kEachAlone, layout.carrier, true);
    WorkersOfTest exact(layout.workers, layout.local, 0, layout.carrier);
    Numbers rounded;
    whole.each([&](const Strategy& s) {
      const Numbers got = trained(s, what, false);
      if (s.extended().layout().worker() == 0) rounded = got;
    });
    pieces.each([&](const Strategy& s) { EXPECT_EQ(trained(s, what, true), rounded); });
    exact.each([&](const Strategy& s) { EXPECT_NE(trained(s, what, false), rounded); });
  }
}

// Both know the learning rate's step count; and steps of both kinds follow each other.
TEST_P(Minimize, StepsOfBothKindsFollowEachOther) {
  const Layout layout = GetParam();
  WorkersOfTest job(layout.workers, layout.local, kEachAlone, layout.carrier);
  job.each([&](const Strategy& s) {
    Program mixed(s, {.name = "mixed"});
    for (int step = 0; step < 6; ++step) mixed.step(step, step % 3 != 2);
    Program applied(s, {.name = "applied"});
    for (int step = 0; step < 6; ++step) applied.step(step, false);
    EXPECT_EQ(mixed.numbers(), applied.numbers());
  });
}

// Behind the first step, which shows what every worker brings.
TEST_P(Minimize, BucketsLeaveWhileThePassGoesOn) {
  const Layout layout = GetParam();
  for (const bool minimizes : {true, false}) {
    WorkersOfTest job(layout.workers, layout.local, kEachAlone, layout.carrier);
    std::atomic<int> left = 0;  // of worker 0, in this step
    job.job.before_each(0, [&](const ExchangeKey&, const CallSignature& signature) {
      if (signature.collective == Collective::kAllToAll) ++left;
    });
    std::atomic<int> left_in_pass = 0;
    job.each([&](const Strategy& s) {
      const bool counts = s.extended().layout().worker() == 0;
      Program program(s, {.name = "plain"});
      for (int step = 0; step < 3; ++step) {
        if (counts) left = 0;
        std::atomic<int> here = 0;
        // The last replica to come sees what all have announced.
        program.step(step, minimizes, [&](int) {
          if (++here == layout.local && counts && step > 0) left_in_pass = left.load();
        });
      }
    });
    if (minimizes && layout.local == 1) {
      EXPECT_GE(left_in_pass, 4) << "all variables but the first one";
    } else if (!minimizes) {
      EXPECT_EQ(left_in_pass, 0);
    }
  }
}

TEST_P(Minimize, AFailureBehindADepartureUndoesTheStepEverywhere) {
  const Layout layout = GetParam();
  WorkersOfTest job(layout.workers, layout.local, kEachAlone, layout.carrier);
  std::vector<std::unique_ptr<Program>> programs(static_cast<std::size_t>(layout.workers));
  const auto of = [&](const Strategy& s) -> Program& {
    return *programs[static_cast<std::size_t>(s.extended().layout().worker())];
  };
  job.each([&](const Strategy& s) {
    auto& mine = programs[static_cast<std::size_t>(s.extended().layout().worker())];
    mine = std::make_unique<Program>(s, Case{.name = "plain"});
    for (int step = 0; step < 2; ++step) mine->step(step, true);
  });
  const Numbers before = programs[0]->numbers();
  const int failing = layout.workers * layout.local - 1;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto errors = job.try_each([&](const Strategy& s) {
      of(s).step(2, true, [&](int id) {
        if (id == failing) throw std::runtime_error("no memory for the first layer");
      });
    });
    for (const std::exception_ptr& error : errors) {
      const std::string text = cohort::testing::error_text([&] {
        if (error) std::rethrow_exception(error);
      });
      EXPECT_NE(text.find("no memory for the first layer"), std::string::npos) << text;
    }
    for (const auto& program : programs) EXPECT_EQ(program->numbers(), before);
  }
  // As if nothing had happened.
  job.each([&](const Strategy& s) {
    of(s).step(2, true);
    Program undisturbed(s, {.name = "plain"});
    for (int step = 0; step < 3; ++step) undisturbed.step(step, true);
    EXPECT_EQ(of(s).numbers(), undisturbed.numbers());
  });
}

// fit() minimizes.
TEST(MinimizeInFit, BucketsOfFitLeaveWhileThePassGoesOn) {
  WorkersOfTest job(2, 1, kEachAlone);
  std::atomic<int> left = 0;
  job.job.before_each(0, [&](const ExchangeKey&, const CallSignature& signature) {
    if (signature.collective == Collective::kAllToAll) ++left;
  });
  std::atomic<int> left_in_pass = 0;
  job.each([&](const Strategy& s) {
    struct Watched final : Model {
      explicit Watched(std::function<void()> in_pass) : in_pass_(std::move(in_pass)) {}
      Tensor call(const Tensor& x, const CallArgs& args) override {
        const Tensor first = first_(x, args);
        if (first.requires_grad()) first.register_hook([this](const Tensor&) { in_pass_(); });
        return last_(first, args);
      }
      std::string class_name() const override { return "Watched"; }

     private:
      const std::function<void()> in_pass_;
      Layer first_ = add("first", Dense(40, {.activation = "relu"}));
      Layer last_ = add("last", Dense(1));
    };
    const bool counts = s.extended().layout().worker() == 0;
    const auto scope = s.scope();
    Watched model([&] {
      if (counts) left_in_pass = left.exchange(0);
    });
    model.compile({.optimizer = "adam", .loss = "mse"});
    const Tensor x = (arange(96, kFloat32) * 0.3).sin().reshape({32, 3});
    model.fit(data::Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(8),
              {.verbose = Verbose::kSilent});
  });
  EXPECT_GE(left_in_pass, 2) << "the last layer's, and what was left of the step before";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Minimize,
    ::testing::Values(Layout{2, 1, Carrier::kThreads}, Layout{3, 1, Carrier::kTcp},
                      Layout{2, 2, Carrier::kThreads}, Layout{2, 2, Carrier::kSharedMemory}),
    [](const auto& test) {
      return std::to_string(test.param.workers) + "x" + std::to_string(test.param.local) + "of" +
             cohort::internal::collectives::carrier_name({test.param.carrier, 0});
    });

}  // namespace
}  // namespace cohort::keras
