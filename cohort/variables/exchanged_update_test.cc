// SPDX-License-Identifier: Apache-2.0
//
// Updates of several workers, which are threads here: the bits, the failures, the slots.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/test_exchange.h"

namespace cohort::internal::variables {
namespace {

using namespace exchange_test;
using update_rules::SgdStep;

TEST(ExchangedUpdate, WorkersOfOneReplicaHaveTheBitsOfOneProcess) {
  for (const WorldOptions& options : clippings()) {
    expect_bits_of_one_process(
        options, options, {collectives::Carrier::kThreads, collectives::Carrier::kSharedMemory});
  }
}

// CommunicationOptions::bytes_per_pack.
TEST(ExchangedUpdate, BytesPerPackCutsWhatTravels) {
  const auto messages = [](std::size_t bytes) {
    World world(2, 1, {.bytes_per_pack = bytes});
    std::atomic<int> count = 0;
    world.job.before_each(
        0, [&](const collectives::ExchangeKey&, const collectives::CallSignature& signature) {
          if (signature.collective == collectives::Collective::kAllToAll) ++count;
        });
    world.run([](Worker& w) { w.apply(0); });
    return count.load();
  };
  EXPECT_EQ(messages(0), 1);
  EXPECT_EQ(messages(1 << 20), 1);  // about 60 KB
  EXPECT_GT(messages(10000), 4);
}

TEST(ExchangedUpdate, SeveralReplicasEachHaveBitsOfTheirOwn) {
  for (const WorldOptions& options : clippings()) {
    for (const int workers : {2, 3}) {
      const Trained got = train(workers, 2, options);
      WorldOptions cut = options;
      cut.update.bytes_per_bucket = 3000;
      cut.carrier = collectives::Carrier::kSharedMemory;
      EXPECT_EQ(got, train(workers, 2, cut)) << "buckets change no bit, and what carries them";
      const Trained one_process = train(1, 2 * workers, options);
      ASSERT_EQ(got.parameters.size(), one_process.parameters.size());
      for (std::size_t i = 0; i < got.parameters.size(); ++i) {
        ASSERT_NEAR(got.parameters[i], one_process.parameters[i], 2e-5) << i;
      }
    }
  }
}

TEST(ExchangedUpdate, OneWorkerIsTheUpdateOfOneProcess) {
  for (const int replicas : {1, 2}) {
    World world(1, replicas);
    Worker plain(replicas, nullptr, {.update = {.slot_initial = {0, 0.25}}});
    for (int step = 0; step < 3; ++step) {
      world[0].apply(step);
      plain.apply(step);
    }
    EXPECT_EQ(world[0].parameters(), plain.parameters());
    EXPECT_EQ(world[0].slots(), plain.slots());
  }
}

TEST(ExchangedUpdate, ReplicasMayShareOneCopyOfTheParameters) {
  const Trained mirrored = train(2, 2, {});
  EXPECT_EQ(train(2, 2, {.placement = ParameterPlacement::kCentral}), mirrored);
}

// Variable v has a gradient on global replica r if has(v, r).
template <class Has>
Trained train_some(int workers, int replicas, const WorldOptions& options, const Has& has) {
  World world(workers, replicas, options);
  for (int step = 0; step < 3; ++step) {
    world.run([&](Worker& w) {
      w.group.run([&](int r) {
        std::vector<GradientAndVariable> pairs;
        for (std::size_t v = 0; v < w.variables.size(); ++v) {
          if (has(v, w.first() + r)) pairs.push_back({w.gradient(v, r, step), w.variables[v]});
        }
        w.update->apply(Gradients(std::move(pairs)), adam_step({}, step + 1), 0.001);
      });
    });
  }
  return {world.parameters(), world.slots()};
}

TEST(ExchangedUpdate, MissingGradientsCountAsInOneProcess) {
  const auto has = [](std::size_t v, int replica) {
    if (v == 0) return replica == 1;  // on one worker only
    if (v == 3) return false;         // on none
    return v != 2 || replica != 0;
  };
  for (const WorldOptions& options : clippings()) {
    const Trained one_process = train_some(1, 3, options, has);
    EXPECT_EQ(train_some(3, 1, options, has), one_process);
    const Trained two = train_some(2, 2, options, has);
    // What nobody has a gradient of stays, and so do its slots.
    World fresh(1, 1, options);
    const std::vector<double> before = fresh[0].parameters();
    constexpr std::size_t kBegin = 37 + 1 + 10000;
    for (std::size_t i = kBegin; i < kBegin + 16; ++i) EXPECT_EQ(two.parameters[i], before[i]);
  }
}

// Slots stand beside each other in two sets, of which one counts.
TEST(ExchangedUpdate, SlotsThatARuleDoesNotUseStay) {
  const auto apply = [](Worker& w, int step) {
    w.group.run([&](int r) {
      const update_rules::Rule rule =
          step % 3 == 0   ? update_rules::Rule(adam_step({}, step + 1))
          : step % 3 == 1 ? update_rules::Rule(update_rules::MomentumStep{.momentum = 0.9})
                          : update_rules::Rule(SgdStep{});
      w.update->apply(w.gradients(r, step), rule);
    });
  };
  World world(2, 1);
  Worker plain(2, nullptr, {.update = {.slot_initial = {0, 0.25}}});
  for (int step = 0; step < 7; ++step) {
    world.run([&](Worker& w) { apply(w, step); });
    apply(plain, step);
  }
  expect_same(world.parameters(), plain.parameters(), "parameters of one process");
  expect_same(world.slots(), plain.slots(), "slots of one process");
}

TEST(ExchangedUpdate, SlotsAreGatheredAndWritten) {
  World world(3, 1);
  world.run([&](Worker& w) { w.apply(0); });
  const Tensor value = (arange(10000, kFloat32) * 0.001).cos();
  world.run([&](Worker& w) {
    w.update->set_slot(2, 1, value);
    EXPECT_TRUE(w.update->slot(2, 1).equal(value));
    EXPECT_THROW(w.update->slot(2, 2), InvalidArgument);
  });
  // The numbers of one process with the same slots.
  Worker plain(3, nullptr, {.update = {.slot_initial = {0, 0.25}}});
  plain.apply(0);
  plain.update->set_slot(2, 1, value);
  plain.apply(1);
  world.run([&](Worker& w) { w.apply(1); });
  expect_same(world.parameters(), plain.parameters(), "one process");
}

// Every worker lists the same boxes; each has its own, and all together are the slot.
TEST(ExchangedUpdate, SlotsLieInPiecesOfTheWorkers) {
  for (const std::size_t bytes : {std::size_t{2000}, std::size_t{4} << 20}) {
    World world(3, 1, {.update = {.bytes_per_bucket = bytes}});
    world.run([&](Worker& w) { w.apply(0); });
    const auto all = world.ask([](Worker& w) { return w.update->slot_pieces(2, 1); });
    const Tensor slot = world.ask([](Worker& w) { return w.update->slot(2, 1); })[0];
    Tensor joined = full({10000}, -1);
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      int readers = 0;
      for (const std::vector<TrackedPiece>& pieces : all) {
        ASSERT_EQ(pieces.size(), all[0].size());
        EXPECT_EQ(pieces[i].offset, all[0][i].offset);
        if (pieces[i].read == nullptr) continue;
        ++readers;
        joined.narrow(0, pieces[i].offset[0], pieces[i].extent[0]).copy_(pieces[i].read());
      }
      EXPECT_EQ(readers, 1) << i;
    }
    EXPECT_TRUE(joined.equal(slot));
  }
  Worker alone(2, nullptr, {.update = {.slot_initial = {0, 0.25}}});
  EXPECT_TRUE(alone.update->slot_pieces(2, 1).empty());
}

TEST(ExchangedUpdate, UpdatesBumpTheVersionOfWhatTheyWrite) {
  World world(2, 1);
  world.run([](Worker& w) {
    const auto before = w.variables[0].value()._version();
    const auto other = w.variables[1].value()._version();
    w.update->apply(Gradients({{w.gradient(0, 0, 0), w.variables[0]}}), adam_step({}, 1));
    EXPECT_GT(w.variables[0].value()._version(), before);
    EXPECT_EQ(w.variables[1].value()._version(), other);
  });
}

// Worker 1 fails before its n-th operation, for every n: a step is whole everywhere or was not.
void fail_at_any_operation(int replicas) {
  for (const WorldOptions& each : {WorldOptions{}, WorldOptions{.update = {.global_clipnorm = 2.0}},
                                   WorldOptions{.carrier = collectives::Carrier::kSharedMemory}}) {
    WorldOptions options = each;
    options.update.bytes_per_bucket = 32768;
    const Trained undisturbed = train(2, replicas, options, 2);
    World world(2, replicas, options);
    world.run([](Worker& w) { w.apply(0); });
    const std::vector<double> before = world.parameters();
    const std::vector<double> slots_before = world.slots();
    int failures = 0;
    for (bool failed = true; failed; ++failures) {
      std::atomic<int> left{failures};
      world.job.before_each(
          1, [&](const collectives::ExchangeKey&, const collectives::CallSignature&) {
            if (left-- == 0) throw Unavailable("the network is gone", "worker 0");
          });
      const auto errors = world.try_run([](Worker& w) { w.apply(1); });
      world.job.before_each(1, {});
      failed = errors[0] != nullptr;
      EXPECT_EQ(text_of(errors[0]), text_of(errors[1]));
      if (!failed) break;
      EXPECT_NE(text_of(errors[0]).find("the network is gone (rank 1 of 2, in "), std::string::npos)
          << text_of(errors[0]);
      EXPECT_EQ(world.parameters(), before);
      run_with_deadline(kLimit,
                        [&] { world.job.run([](collectives::Communicator& c) { c.renew(); }); });
      EXPECT_EQ(world.slots(), slots_before);
    }
    EXPECT_GT(failures, 5);  // header, buckets, parameters, commit
    EXPECT_EQ(world.parameters(), undisturbed.parameters);
    EXPECT_EQ(world.slots(), undisturbed.slots);
  }
}

TEST(ExchangedUpdate, AFailureAtAnyOperationWritesNothing) { fail_at_any_operation(2); }
TEST(ExchangedUpdate, NorDoesItWhereGradientsAreLent) { fail_at_any_operation(1); }

TEST(ExchangedUpdate, AWrongGradientOfOneReplicaIsEverybodysError) {
  World world(2, 2);
  const std::vector<double> before = world.parameters();
  const auto errors = world.try_run([](Worker& w) {
    w.group.run([&](int r) {
      std::vector<GradientAndVariable> pairs = {{w.gradient(0, r, 0), w.variables[0]}};
      if (w.first() + r == 3) pairs[0].gradient = ones({38});
      w.update->apply(Gradients(std::move(pairs)), adam_step({}, 1));
    });
  });
  for (const auto& error : errors) {
    EXPECT_NE(text_of(error).find("expected a gradient of shape [37]"), std::string::npos);
    EXPECT_NE(text_of(error).find("(rank 1 of 2, in optimizer.apply_gradients)"), std::string::npos)
        << text_of(error);
  }
  EXPECT_EQ(world.parameters(), before);
}

TEST(ExchangedUpdate, DifferingLearningRatesAreAnError) {
  World world(2, 1);
  const std::vector<double> before = world.parameters();
  const auto errors =
      world.try_run([](Worker& w) { w.apply(0, /*learning_rate=*/w.first() == 0 ? 0.01 : 0.02); });
  for (const auto& error : errors) {
    EXPECT_NE(text_of(error).find(
                  "expected every worker to apply the same rule, got Adam with learning rate"),
              std::string::npos)
        << text_of(error);
  }
  EXPECT_EQ(world.parameters(), before);
}

TEST(ExchangedUpdate, DifferingVariablesAreAnError) {
  World world(2, 1);
  const auto errors = world.try_run([](Worker& w) {
    FusedUpdate other(w.first() == 0 ? std::vector{w.variables[0], w.variables[1]}
                                     : std::vector{w.variables[0], w.variables[4]});
    other.apply(Gradients({{w.gradient(0, 0, 0), w.variables[0]}}), SgdStep{.learning_rate = 1});
  });
  // By their bytes or by their names, whichever is seen first.
  for (const auto& error : errors) {
    EXPECT_NE(text_of(error).find("expected "), std::string::npos) << text_of(error);
    EXPECT_NE(text_of(error), "nothing thrown");
  }
}

// A user's ops add up the replicas of each worker, the workers add up in rank order.
class CountingOps final : public ReductionToOneDevice {
 public:
  std::atomic<int> batches{0};

 protected:
  std::vector<Mirrored<Gradient>> do_batch_reduce(ReduceOp op, std::span<const ReduceItem> items,
                                                  const CommunicationOptions& options) override {
    ++batches;
    return ReductionToOneDevice::do_batch_reduce(op, items, options);
  }
};

TEST(ExchangedUpdate, OpsOfTheProgramAddUpTheReplicasOfAWorker) {
  for (const WorldOptions& each : clippings()) {
    WorldOptions options = each;
    const auto ops = std::make_shared<CountingOps>();
    const Trained plain = train(2, 2, options);
    options.ops = ops;
    const Trained got = train(2, 2, options);
    EXPECT_EQ(ops->batches, 8) << "steps of two workers";
    if (options.update.global_clipnorm) {  // norms by variables, not by runs
      for (std::size_t i = 0; i < got.parameters.size(); ++i) {
        ASSERT_NEAR(got.parameters[i], plain.parameters[i], 1e-6);
      }
      continue;
    }
    expect_same(got.parameters, plain.parameters, "parameters");
    expect_same(got.slots, plain.slots, "slots");
  }
}

// As one process whose replicas do: each has its own copies and slots from then on.
TEST(ExchangedUpdate, ReplicasMayPartAndMeetAgain) {
  struct All {
    std::vector<std::vector<double>> parameters;  // [replica]
    std::vector<double> slots;                    // of replica 0
  };
  const auto train_apart = [](int workers, int replicas) {
    World world(workers, replicas);
    const auto rule = [](int step) { return adam_step({}, step + 1); };
    std::vector<All> all(static_cast<std::size_t>(workers));
    world.run([&](Worker& w) {
      w.apply(0);
      for (int step = 1; step < 4; ++step) {
        w.group.run([&](int r) { w.update->apply_own(w.gradients(r, step), rule(step), 0.001); });
      }
      w.apply(4);
      All& mine = all[static_cast<std::size_t>(w.first() / replicas)];
      for (int r = 0; r < replicas; ++r) {
        std::vector<double> numbers;
        for (const Variable& v : w.variables) {
          const Variable part = v.components()[static_cast<std::size_t>(r)];
          for (const double x : to_vector<double>(part.value())) numbers.push_back(x);
        }
        mine.parameters.push_back(numbers);
      }
      mine.slots = w.slots();
    });
    All out{{}, all[0].slots};
    for (const All& one : all) {
      out.parameters.insert(out.parameters.end(), one.parameters.begin(), one.parameters.end());
    }
    return out;
  };
  const All process = train_apart(1, 3);
  const All workers = train_apart(3, 1);
  ASSERT_EQ(workers.parameters.size(), 3U);
  for (std::size_t r = 0; r < 3; ++r) {
    expect_same(workers.parameters[r], process.parameters[r], str_cat("replica ", r));
  }
  expect_same(workers.slots, process.slots, "slots");
  EXPECT_NE(workers.parameters[0], workers.parameters[1]);
  // Several replicas each: their own parts are those of one process, the sums nearly.
  const All four = train_apart(1, 4);
  const All two = train_apart(2, 2);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < four.parameters[r].size(); ++i) {
      ASSERT_NEAR(two.parameters[r][i], four.parameters[r][i], 2e-5) << r << " " << i;
    }
  }
}

}  // namespace
}  // namespace cohort::internal::variables
