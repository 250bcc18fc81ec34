// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

void check_steps(const char* schedule, int64_t decay_steps) {
  COHORT_CHECK_ARG(decay_steps > 0, "[", schedule, "] expected decay_steps above 0, got ",
                   decay_steps);
}

double periods(int64_t step, int64_t decay_steps, bool staircase) {
  const double p = static_cast<double>(step) / static_cast<double>(decay_steps);
  return staircase ? std::floor(p) : p;
}

double cosine(double from, double alpha, double fraction) {
  const double decayed = 0.5 * (1 + std::cos(std::numbers::pi * fraction));
  return from * ((1 - alpha) * decayed + alpha);
}

}  // namespace

LearningRate ExponentialDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options) {
  check_steps("exponential_decay", decay_steps);
  return [=](int64_t step) {
    return initial * std::pow(decay_rate, periods(step, decay_steps, options.staircase));
  };
}

LearningRate InverseTimeDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options) {
  check_steps("inverse_time_decay", decay_steps);
  return [=](int64_t step) {
    return initial / (1 + decay_rate * periods(step, decay_steps, options.staircase));
  };
}

LearningRate PiecewiseConstantDecay(std::vector<int64_t> boundaries, std::vector<double> values) {
  COHORT_CHECK_ARG(values.size() == boundaries.size() + 1, "[piecewise_constant_decay] expected ",
                   boundaries.size() + 1, " values, one more than the ", boundaries.size(),
                   " boundaries, got ", values.size());
  COHORT_CHECK_ARG(std::is_sorted(boundaries.begin(), boundaries.end()),
                   "[piecewise_constant_decay] expected ascending boundaries, got ",
                   bracketed(boundaries));
  return [=](int64_t step) {
    const auto at = std::lower_bound(boundaries.begin(), boundaries.end(), step);
    return values[static_cast<std::size_t>(at - boundaries.begin())];
  };
}

LearningRate PolynomialDecay(double initial, int64_t decay_steps, PolynomialDecayOptions options) {
  check_steps("polynomial_decay", decay_steps);
  return [=](int64_t step) {
    double position = static_cast<double>(step);
    double length = static_cast<double>(decay_steps);
    if (options.cycle) {
      length *= std::max(1.0, std::ceil(position / length));
    } else {
      position = std::min(position, length);
    }
    const double end = options.end_learning_rate;
    return (initial - end) * std::pow(1 - position / length, options.power) + end;
  };
}

LearningRate CosineDecay(double initial, int64_t decay_steps, CosineDecayOptions options) {
  check_steps("cosine_decay", decay_steps);
  COHORT_CHECK_ARG(!options.warmup_target || options.warmup_steps > 0,
                   "[cosine_decay] expected warmup_steps above 0 with a warmup_target, got ",
                   options.warmup_steps);
  return [=](int64_t step) {
    const int64_t warmup = options.warmup_target ? options.warmup_steps : 0;
    const double target = options.warmup_target.value_or(initial);
    if (step < warmup) {
      return initial + (target - initial) * static_cast<double>(step) / static_cast<double>(warmup);
    }
    const int64_t decayed = std::min(step - warmup, decay_steps);
    return cosine(target, options.alpha,
                  static_cast<double>(decayed) / static_cast<double>(decay_steps));
  };
}

}  // namespace cohort::keras
