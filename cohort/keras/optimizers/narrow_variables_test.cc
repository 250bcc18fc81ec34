// SPDX-License-Identifier: Apache-2.0
//
// Variables of float16 and bfloat16: what float32's optimizer makes of them, rounded at the end of
// every step, slots too.
#include <gtest/gtest.h>

#include "cohort/keras/optimizers/internal/test_world.h"
#include "cohort/keras/optimizers/loss_scale_optimizer.h"
#include "cohort/keras/optimizers/whole_variable.h"

namespace cohort::keras {
namespace {

struct Narrow {
  DType dtype;
  int replicas;
  ParameterPlacement placement;
};

class NarrowVariables : public ::testing::TestWithParam<Narrow> {};
INSTANTIATE_TEST_SUITE_P(Worlds, NarrowVariables,
                         ::testing::Values(Narrow{kFloat16, 1, ParameterPlacement::kMirrored},
                                           Narrow{kBFloat16, 1, ParameterPlacement::kMirrored},
                                           Narrow{kFloat16, 2, ParameterPlacement::kMirrored},
                                           Narrow{kBFloat16, 2, ParameterPlacement::kMirrored},
                                           Narrow{kBFloat16, 2, ParameterPlacement::kCentral}));

std::vector<Optimizer> of_every_kind() {
  return {SGD({.learning_rate = 0.1}),
          SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .clipnorm = 1.0}),
          Adam({.learning_rate = 0.01}),
          Adam({.learning_rate = 0.01, .amsgrad = true, .clipvalue = 0.4}),
          AdamW({.learning_rate = 0.01, .exclude_from_weight_decay = {"b"}}),
          RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true}),
          Adagrad({.learning_rate = 0.1, .global_clipnorm = 2.0}),
          Adadelta({.learning_rate = 1.0}),
          Adamax({.learning_rate = 0.01}),
          Nadam({.learning_rate = 0.01}),
          Ftrl({.learning_rate = 0.1, .l1_regularization_strength = 0.01}),
          Lion({.learning_rate = 0.01}),
          Lamb({.learning_rate = 0.01}),
          Adafactor({.learning_rate = 0.1}),
          Muon({.learning_rate = 0.01})};
}

Tensor rounded(const Tensor& x, DType dtype) { return x.to(dtype).to(x.scalar_type()); }

// All that float32's world keeps: weights and slots, but not numbers such as a step's.
void round_all(const Optimizer& optimizer, const World& world, DType dtype) {
  for (const Variable& v : world.variables) v.assign(rounded(v.value(), dtype));
  for (const Variable& v : optimizer.variables()) {
    if (v.dtype() == kFloat32 && v.impl().numel() > 1) v.assign(rounded(v.value(), dtype));
  }
}

Numbers slots(const Optimizer& optimizer) {
  Numbers all;
  for (const Variable& v : optimizer.variables()) {
    for (const double x : to_vector<double>(v.value())) all.push_back(x);
  }
  return all;
}

TEST_P(NarrowVariables, AreFloat32sRoundedInEachStep) {
  const DType dtype = GetParam().dtype;
  const int replicas = GetParam().replicas;
  const ParameterPlacement placement = GetParam().placement;
  const std::vector<Optimizer> all = of_every_kind(), exact = of_every_kind();
  // The last three see gradients that are summed already, and rounded then.
  const std::size_t count = replicas == 1 ? all.size() : all.size() - 3;
  for (std::size_t i = 0; i < count; ++i) {
    SCOPED_TRACE(all[i].name());
    World world(replicas, UpdateSchedule::kSharded, dtype, placement);
    World wide(replicas, UpdateSchedule::kSharded, kFloat32, placement);
    exact[i].build(wide.variables);  // slots begin rounded, too
    round_all(exact[i], wide, dtype);
    for (int step = 0; step < kSteps; ++step) {
      world.group.run([&](int r) { all[i].apply_gradients(world.gradients(step, r)); });
      wide.group.run([&](int r) {
        Gradients gradients = wide.gradients(step, r);
        for (std::size_t v = 0; v < gradients.size(); ++v) {
          gradients[v].gradient = rounded(gradients[v].gradient.dense(), dtype);
        }
        exact[i].apply_gradients(gradients);
      });
      round_all(exact[i], wide, dtype);
      for (int r = 0; r < replicas; ++r) ASSERT_EQ(world.weights(r), wide.weights(r)) << step;
      ASSERT_EQ(slots(all[i]), slots(exact[i])) << step;
    }
    for (const Variable& v : world.variables) EXPECT_EQ(v.dtype(), dtype);
    for (const Variable& v : all[i].variables()) {
      if (v.impl().numel() > 1) {
        EXPECT_EQ(v.dtype(), dtype) << v.name();
      }
    }
  }
}

TEST_P(NarrowVariables, TrainWithAveragesAccumulationAndScaledLosses) {
  const DType dtype = GetParam().dtype;
  const int replicas = GetParam().replicas;
  const ParameterPlacement placement = GetParam().placement;
  const auto trained = [&](DType of, const Optimizer& optimizer, double scale = 1) {
    World world(replicas, UpdateSchedule::kSharded, of, placement);
    world.group.run([&](int r) {
      for (int step = 0; step < kSteps; ++step) {
        Gradients gradients = world.gradients(step, r);
        for (std::size_t v = 0; v < gradients.size(); ++v) {
          gradients[v].gradient = gradients[v].gradient.dense() * scale;
        }
        optimizer.apply_gradients(gradients);
      }
    });
    optimizer.finalize_variable_values();
    return world.weights();
  };
  const double most = dtype == kFloat16 ? 1e-2 : 8e-2;
  const auto expect_near = [&](const Numbers& got, const Numbers& want) {
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], most) << i;
  };
  const auto averaged = [] {
    return SGD({.learning_rate = 0.1, .momentum = 0.5, .use_ema = true, .ema_momentum = 0.9});
  };
  expect_near(trained(dtype, averaged()), trained(kFloat32, averaged()));
  const auto overwritten = [] {
    return SGD(
        {.learning_rate = 0.1, .use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 3});
  };
  expect_near(trained(dtype, overwritten()), trained(kFloat32, overwritten()));
  const auto accumulated = [] {
    return Adam({.learning_rate = 0.01, .gradient_accumulation_steps = 2});
  };
  expect_near(trained(dtype, accumulated()), trained(kFloat32, accumulated()));
  const auto plain = [] { return SGD({.learning_rate = 0.1}); };
  expect_near(trained(dtype, LossScaleOptimizer(plain(), {.initial_scale = 64}), 64),
              trained(kFloat32, plain()));
}

}  // namespace
}  // namespace cohort::keras
