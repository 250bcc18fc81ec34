// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/fused_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables {
namespace {

using update_rules::adam_step;
using update_rules::AdamConfig;
using update_rules::SgdStep;

struct Rig {
  explicit Rig(int replicas, UpdateSchedule schedule, std::shared_ptr<CrossDeviceOps> ops = {})
      : group({.replicas = replicas}) {
    LocalVariablesOptions options{.devices = {}, .schedule = schedule, .cross_device_ops = ops};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    creator = std::make_shared<LocalVariables>(options);
    const VariableCreatorScope scope(creator);
    for (const int64_t size : {37, 1, 1000, 16}) {
      variables.emplace_back(arange(size, kFloat32) * 0.01);
    }
  }
  Gradients gradients(int replica, int step) const {
    std::vector<GradientAndVariable> pairs;
    for (const Variable& v : variables) {
      pairs.push_back({(arange(v.value().numel(), kFloat32) * 0.37 + replica + step).sin(), v});
    }
    return Gradients(std::move(pairs));
  }
  runtime::ReplicaGroup group;
  std::shared_ptr<LocalVariables> creator;
  std::vector<Variable> variables;
};

std::vector<float> train(int replicas, UpdateSchedule schedule, UpdaterOptions options = {},
                         std::shared_ptr<CrossDeviceOps> ops = {}) {
  Rig s(replicas, schedule, std::move(ops));
  options.slot_initial = {0, 0};
  FusedUpdate update(s.variables, options);
  for (int step = 0; step < 5; ++step) {
    s.group.run([&](int r) {
      update.apply(s.gradients(r, step), adam_step(AdamConfig{.learning_rate = 0.01}, step + 1),
                   0.001);
    });
  }
  std::vector<float> out;
  for (const Variable& v : s.variables) {
    const auto parts = v.components();
    for (const Variable& part : parts) {
      EXPECT_EQ(to_vector<float>(part.value()), to_vector<float>(parts[0].value()));
    }
    for (const float x : to_vector<float>(v.value())) out.push_back(x);
  }
  return out;
}

TEST(FusedUpdate, BothSchedulesGiveTheSameBits) {
  for (const int replicas : {2, 3, 4}) {
    EXPECT_EQ(train(replicas, UpdateSchedule::kSharded), train(replicas, UpdateSchedule::kPull))
        << replicas << " replicas";
  }
}

TEST(FusedUpdate, ClippingIsTheSameUnderBothSchedules) {
  for (const UpdaterOptions& options :
       {UpdaterOptions{.clipvalue = 0.5}, UpdaterOptions{.clipnorm = 1.5},
        UpdaterOptions{.global_clipnorm = 2.0}}) {
    EXPECT_EQ(train(2, UpdateSchedule::kSharded, options),
              train(2, UpdateSchedule::kPull, options));
    EXPECT_NE(train(2, UpdateSchedule::kPull, options), train(2, UpdateSchedule::kPull));
  }
}

TEST(FusedUpdate, AUsersReductionTakesTheFusedUpdatesPlace) {
  const auto with_ops =
      train(2, UpdateSchedule::kPull, {}, std::make_shared<ReductionToOneDevice>());
  const auto fused = train(2, UpdateSchedule::kPull);
  ASSERT_EQ(with_ops.size(), fused.size());
  for (std::size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(with_ops[i], fused[i], 1e-6) << i;
}

// One meeting a step is enough, unless somebody may write a gradient that others still read.
TEST(FusedUpdate, MeetsAgainOnlyWhereAGradientIsHeld) {
  Rig s(2, UpdateSchedule::kPull);
  FusedUpdate update(s.variables);
  const auto meetings = [&](const auto& keep) {
    uint64_t count = 0;
    s.group.run([&](int r) {
      const auto lease = std::make_shared<GradientLease>();
      std::vector<GradientAndVariable> pairs;
      for (const Variable& v : s.variables) {
        pairs.push_back({lease->place(v.impl()).fill_(r + 1), v});
      }
      const Gradients gradients(std::move(pairs), lease);
      // Whoever it is, all meet.
      [[maybe_unused]] const auto kept = r == 1 ? keep(gradients) : decltype(keep(gradients)){};
      const uint64_t before = s.group.epoch(r);
      update.apply(gradients, SgdStep{.learning_rate = 1});
      if (r == 0) count = s.group.epoch(r) - before;
    });
    return count;
  };
  EXPECT_EQ(meetings([](const Gradients&) { return 0; }), 1U);
  EXPECT_EQ(meetings([](const Gradients& g) { return Tensor(g[2].gradient); }), 2U);
  EXPECT_EQ(meetings([](const Gradients& g) { return g[0].gradient.dense().narrow(0, 1, 2); }), 2U);
  EXPECT_EQ(meetings([](const Gradients& g) { return Gradients(g); }), 2U);
}

TEST(FusedUpdate, SumsOverReplicasAndSkipsWhatHasNoGradient) {
  Rig s(2, UpdateSchedule::kSharded);
  FusedUpdate update(s.variables);
  const auto before = to_vector<float>(s.variables[3].value());
  s.group.run([&](int r) {
    std::vector<GradientAndVariable> pairs = {{Gradient(ones({37}) * (r + 1)), s.variables[0]},
                                              {Gradient(), s.variables[3]}};
    // Variable 1 has a gradient on replica 1 only: none counts as zero.
    if (r == 1) pairs.push_back({Gradient(ones({1})), s.variables[1]});
    update.apply(Gradients(pairs), SgdStep{.learning_rate = 0.5});
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_FLOAT_EQ(s.variables[0].impl().leaf_of(r).tensor[2].item<float>(), 0.02F - 1.5F);
    EXPECT_FLOAT_EQ(s.variables[1].impl().leaf_of(r).tensor[0].item<float>(), -0.5F);
  }
  EXPECT_EQ(to_vector<float>(s.variables[3].value()), before);
}

TEST(FusedUpdate, WritesNothingWhenAReplicaFails) {
  Rig s(2, UpdateSchedule::kPull);
  FusedUpdate update(s.variables);
  const auto before = to_vector<float>(s.variables[2].value());
  EXPECT_THROW(s.group.run([&](int r) {
    if (r == 1) throw InvalidArgument("boom");
    update.apply(s.gradients(r, 0), SgdStep{.learning_rate = 1});
  }),
               InvalidArgument);
  EXPECT_EQ(to_vector<float>(s.variables[2].value()), before);
  s.group.run([&](int r) { update.apply(s.gradients(r, 0), SgdStep{.learning_rate = 1}); });
  EXPECT_NE(to_vector<float>(s.variables[2].value()), before);
}

TEST(FusedUpdate, DifferentUpdatesOnReplicasAreAnError) {
  Rig s(2, UpdateSchedule::kSharded);
  FusedUpdate a(s.variables);
  FusedUpdate b(s.variables);
  EXPECT_THROW(s.group.run([&](int r) {
    (r == 0 ? a : b).apply(s.gradients(r, 0), SgdStep{.learning_rate = 1});
  }),
               FailedPrecondition);
}

TEST(FusedUpdate, UpdatesBumpTheVersion) {
  Rig s(1, UpdateSchedule::kPull);
  FusedUpdate update(s.variables);
  const auto before = s.variables[0].value()._version();
  s.group.run([&](int r) { update.apply(s.gradients(r, 0), SgdStep{.learning_rate = 1}); });
  EXPECT_GT(s.variables[0].value()._version(), before);
}

TEST(FusedUpdate, SlotsReadAndWrite) {
  Rig s(2, UpdateSchedule::kPull);
  FusedUpdate update(s.variables, {.slot_initial = {0.1, 0}});
  EXPECT_EQ(update.slot_count(), 2);
  EXPECT_FLOAT_EQ(update.slot(2, 0)[999].item<float>(), 0.1F);
  update.set_slot(2, 1, ones({1000}) * 3);
  EXPECT_FLOAT_EQ(update.slot(2, 1)[5].item<float>(), 3);
  EXPECT_THROW(update.slot(2, 2), InvalidArgument);
}

TEST(FusedUpdate, RefusesWhatItCannotUpdate) {
  Rig s(2, UpdateSchedule::kSharded);
  EXPECT_THROW(FusedUpdate({s.variables[0], s.variables[0]}), InvalidArgument);
  EXPECT_THROW(FusedUpdate({s.variables[0], Variable(scalar(1))}), InvalidArgument);
  EXPECT_THROW(FusedUpdate({Variable(scalar(1), {.trainable = false})}), InvalidArgument);
  FusedUpdate update({s.variables[0]});
  EXPECT_THROW(update.apply(s.gradients(0, 0), SgdStep{.learning_rate = 1}), FailedPrecondition);
  EXPECT_THROW(
      s.group.run([&](int r) { update.apply(s.gradients(r, 0), SgdStep{.learning_rate = 1}); }),
      InvalidArgument);
}

TEST(GradientLease, BuffersAreReusedWhenNobodyReadsThem) {
  Rig s(2, UpdateSchedule::kPull);
  FusedUpdate update(s.variables);
  std::vector<void*> first(2);
  for (int run = 0; run < 3; ++run) {
    s.group.run([&](int r) {
      GradientLease lease;
      const Tensor place = lease.place(s.variables[0].impl());
      void* data = place.data_ptr();
      if (run == 0) first[static_cast<std::size_t>(r)] = data;
      EXPECT_EQ(data, first[static_cast<std::size_t>(r)]);
      GradientLease second;
      EXPECT_NE(second.place(s.variables[0].impl()).data_ptr(), data);
    });
  }
}

TEST(FusedUpdate, GradientsOfDeadVariablesLeaveNoTrace) {
  const auto creator = std::make_shared<LocalVariables>();
  const VariableCreatorScope scope(creator);
  const auto step = [](const Variable& v, const Tensor& gradient) {
    FusedUpdate update({v}, {.clipnorm = 1});
    update.apply(Gradients({{gradient, v}}), SgdStep{.learning_rate = 1});
  };
  step(Variable(zeros({16})), full({16}, std::nan("")));
  const Variable smaller(zeros({10}));  // at the same place, with padding
  step(smaller, ones({10}) * 10);
  EXPECT_NEAR(smaller.value().norm().item<double>(), 1, 1e-6);
}

TEST(FusedUpdate, AReplicaMayWriteItsCopyRightBehind) {
  using S = UpdateSchedule;
  for (const auto& [schedule, norm] : {std::pair(S::kSharded, false), std::pair(S::kSharded, true),
                                       std::pair(S::kPull, false), std::pair(S::kPull, true)}) {
    Rig s(2, schedule);
    UpdaterOptions options;
    if (norm) options.global_clipnorm = 1;
    FusedUpdate update(s.variables, options);
    for (int step = 0; step < 50; ++step) {
      s.group.run([&](int r) {
        for (int inner = 0; inner < 4; ++inner) {
          update.apply(s.gradients(r, step), SgdStep{.learning_rate = 0.01});
          for (const Variable& v : s.variables) v.assign_sub(v * 0.01);
        }
      });
    }
    for (const Variable& v : s.variables) {
      const auto parts = v.components();
      EXPECT_EQ(to_vector<float>(parts[0].value()), to_vector<float>(parts[1].value()));
    }
  }
}

// What a world of one replica makes of replica r's gradients.
std::vector<float> train_alone(int r, int steps) {
  Rig s(1, UpdateSchedule::kPull);
  FusedUpdate update(s.variables, {.slot_initial = {0, 0}, .global_clipnorm = 2});
  for (int step = 0; step < steps; ++step) {
    update.apply(s.gradients(r, step), adam_step(AdamConfig{.learning_rate = 0.01}, step + 1),
                 0.001);
  }
  return to_vector<float>(s.variables[2].value());
}

TEST(FusedUpdate, OwnGradientsPartTheReplicas) {
  std::vector<std::vector<float>> mixed;
  for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
    Rig s(2, schedule);
    FusedUpdate update(s.variables, {.slot_initial = {0, 0}, .global_clipnorm = 2});
    const auto apply = [&](int r, int step, bool own) {
      const auto rule = adam_step(AdamConfig{.learning_rate = 0.01}, step + 1);
      if (own) {
        update.apply_own(s.gradients(r, step), rule, 0.001);
      } else {
        update.apply(s.gradients(r, step), rule, 0.001);
      }
    };
    s.group.run([&](int r) {
      for (int step = 0; step < 5; ++step) apply(r, step, true);
    });
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(to_vector<float>(s.variables[2].impl().leaf_of(r).tensor), train_alone(r, 5));
    }
    // Summed from here on, each with the slots that it has.
    s.group.run([&](int r) {
      for (int step = 5; step < 8; ++step) apply(r, step, step == 6);
    });
    for (int r = 0; r < 2; ++r) {
      mixed.push_back(to_vector<float>(s.variables[2].impl().leaf_of(r).tensor));
    }
    EXPECT_THROW(update.apply_own(s.gradients(0, 0), adam_step({}, 1)), FailedPrecondition);
  }
  EXPECT_EQ(mixed[0], mixed[2]);
  EXPECT_EQ(mixed[1], mixed[3]);
  EXPECT_NE(mixed[0], mixed[1]);
}

TEST(FusedUpdate, OwnGradientsFirstTakeTheSlotsAlong) {
  std::vector<std::vector<float>> got;
  for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
    Rig s(2, schedule);
    FusedUpdate update(s.variables, {.slot_initial = {0.1}});
    s.group.run([&](int r) {
      const update_rules::AdagradStep rule{.learning_rate = 0.1};
      update.apply(s.gradients(r, 0), rule);
      update.apply_own(s.gradients(r, 1), rule);
    });
    got.push_back(to_vector<float>(s.variables[0].impl().leaf_of(1).tensor));
  }
  EXPECT_EQ(got[0], got[1]);
}

TEST(FusedUpdate, AThrowBehindTheUpdateLeavesEqualCopies) {
  for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
    Rig s(2, schedule);
    FusedUpdate update(s.variables);
    for (int step = 0; step < 100; ++step) {
      EXPECT_THROW(s.group.run([&](int r) {
        update.apply(s.gradients(r, step), SgdStep{.learning_rate = 0.01});
        if (r == step % 2) throw InvalidArgument("not a number");
        s.group.barrier();
      }),
                   InvalidArgument);
    }
    for (const Variable& v : s.variables) {
      const auto parts = v.components();
      EXPECT_EQ(to_vector<float>(parts[0].value()), to_vector<float>(parts[1].value()));
    }
  }
}

}  // namespace
}  // namespace cohort::internal::variables
