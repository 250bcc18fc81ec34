// SPDX-License-Identifier: Apache-2.0
//
// For the optimizers' tests: replicas with two variables, and Keras's formulas to hold them
// against.
#pragma once

#include <ATen/ops/sqrt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/variables/local_variables.h"

namespace cohort::keras {

using cohort::internal::runtime::ReplicaGroup;
using cohort::internal::variables::LocalVariables;
using cohort::internal::variables::LocalVariablesOptions;
using cohort::internal::variables::ParameterPlacement;
using cohort::internal::variables::UpdateSchedule;
using cohort::internal::variables::VariableCreatorScope;
using Numbers = std::vector<double>;

inline constexpr int kSteps = 20;

/// Replicas with two variables, "a" of 7 and "b" of 3 elements.
struct World {
  explicit World(int replicas, UpdateSchedule schedule = UpdateSchedule::kSharded,
                 DType dtype = kFloat64,
                 ParameterPlacement placement = ParameterPlacement::kMirrored)
      : group({.replicas = replicas}) {
    LocalVariablesOptions options;
    options.devices.clear();
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back("CPU:" + std::to_string(r));
    options.schedule = schedule;
    options.placement = placement;
    creator = std::make_shared<LocalVariables>(options);
    const VariableCreatorScope scope(creator);
    variables.emplace_back(start(7).to(dtype), VariableOptions{.name = "layer/a"});
    variables.emplace_back(start(3).to(dtype), VariableOptions{.name = "layer/b"});
  }
  static Tensor start(int64_t n) { return (arange(n).to(kFloat64) - 2.5) * 0.3; }

  /// Gradient of element i of a variable at a step, of one replica; their sum over replicas is
  /// gradient(step, i).
  Gradients gradients(int step, int replica) const {
    std::vector<GradientAndVariable> pairs;
    for (const Variable& variable : variables) {
      const int64_t n = variable.impl().numel();
      Tensor g = empty({n}, kFloat64);
      for (int64_t i = 0; i < n; ++i) {
        const double share = group.size() == 1 ? 1 : (replica == 0 ? 0.25 : 0.75);
        g.mutable_data_ptr<double>()[i] = gradient(step, i) * share;
      }
      pairs.push_back({g.to(variable.dtype()), variable});
    }
    return pairs;
  }
  /// The same numbers for this world's variables.
  Gradients with_own(Gradients gradients) const {
    for (std::size_t i = 0; i < variables.size(); ++i) gradients[i].variable = variables[i];
    return gradients;
  }
  static double gradient(int step, int64_t i) {
    return std::cos(0.7 * step + 1.3 * static_cast<double>(i)) * (i == 4 ? 5 : 0.8);
  }

  void train(const Optimizer& optimizer, int steps = kSteps, ApplyOptions options = {}) {
    group.run([&](int r) {
      for (int t = 0; t < steps; ++t) optimizer.apply_gradients(gradients(t, r), options);
    });
  }
  Numbers weights(int replica = 0) const {
    Numbers all;
    for (const Variable& variable : variables) {
      const auto part = to_vector<double>(variable.impl().leaf_of(replica).tensor);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  ReplicaGroup group;
  std::shared_ptr<LocalVariables> creator;
  std::vector<Variable> variables;
};

/// Keras's published formula for one element: w after the step; s are its slots.
using Formula = std::function<double(double w, double g, Numbers& s, int step)>;

struct Clipping {
  double value = INFINITY;
  double norm = INFINITY;
  double global_norm = INFINITY;
};

inline double norm_of(int step, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += std::pow(World::gradient(step, i), 2);
  return std::sqrt(squares);
}

inline Numbers expected(const Formula& formula, double slot_start = 0, Clipping clip = {},
                        const std::function<double(int step, int variable)>& decay = nullptr) {
  Numbers all;
  for (int v = 0; v < 2; ++v) {
    const int64_t n = v == 0 ? 7 : 3;
    for (int64_t i = 0; i < n; ++i) {
      double w = (static_cast<double>(i) - 2.5) * 0.3;
      Numbers slots(3, slot_start);
      for (int t = 0; t < kSteps; ++t) {
        double g = World::gradient(t, i);
        g *= std::min(1.0, clip.norm / norm_of(t, n));
        g *= std::min(1.0, clip.global_norm / std::hypot(norm_of(t, 7), norm_of(t, 3)));
        g = std::clamp(g, -clip.value, clip.value);
        if (decay) w -= w * decay(t, v);
        w = formula(w, g, slots, t);
      }
      all.push_back(w);
    }
  }
  return all;
}

inline void expect_close(const Numbers& got, const Numbers& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

/// The worlds in which every formula must hold: one replica and two, both schedules, one copy.
inline std::vector<std::unique_ptr<World>> all_worlds() {
  using Schedule = UpdateSchedule;
  std::vector<std::unique_ptr<World>> worlds;
  for (const int replicas : {1, 2}) {
    for (const Schedule schedule : {Schedule::kSharded, Schedule::kPull}) {
      worlds.push_back(std::make_unique<World>(replicas, schedule));
    }
    worlds.push_back(
        std::make_unique<World>(replicas, Schedule::kPull, kFloat64, ParameterPlacement::kCentral));
  }
  return worlds;
}

/// The formula in all worlds, on every replica's copy.
inline void check(const std::function<Optimizer()>& make, const Numbers& want,
                  double tolerance = 1e-12) {
  for (const auto& world : all_worlds()) {
    const Optimizer optimizer = make();
    SCOPED_TRACE(optimizer.name());
    world->train(optimizer);
    for (int r = 0; r < world->group.size(); ++r) expect_close(world->weights(r), want, tolerance);
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), kSteps);
  }
}

inline Formula sgd(double rate) {
  return [=](double w, double g, Numbers&, int) { return w - rate * g; };
}

inline Formula adam(double rate, bool amsgrad = false) {
  return [=](double w, double g, Numbers& s, int t) {
    const double b1 = 0.9, b2 = 0.999;
    const double alpha = rate * std::sqrt(1 - std::pow(b2, t + 1)) / (1 - std::pow(b1, t + 1));
    s[0] += (g - s[0]) * (1 - b1);
    s[1] += (g * g - s[1]) * (1 - b2);
    if (amsgrad) s[2] = std::max(s[2], s[1]);
    return w - s[0] * alpha / (std::sqrt(amsgrad ? s[2] : s[1]) + 1e-7);
  };
}

}  // namespace cohort::keras
