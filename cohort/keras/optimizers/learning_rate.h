// SPDX-License-Identifier: Apache-2.0
//
// Learning rates: a number, a schedule of Keras, or any callable step -> rate.
//
//   keras::SGD({.learning_rate = keras::CosineDecay(0.1, 10000)});
//   keras::Adam({.learning_rate = [](int64_t step) { return step < 100 ? 1e-4 : 1e-3; }});
//
// A step counts from 0: it is the optimizer's `iterations` before the update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/keras/serializable.h"

namespace cohort::keras {

/// Derive to write a schedule with a config. Threads: immutable; called on all replicas' threads, a
/// pure function. TF: keras.optimizers.schedules.LearningRateSchedule.
class ScheduleBase : public Serializable {
 public:
  using Kind = ScheduleBase;
  static constexpr const char* kKind = "Schedule";
  static void base_fields(auto&, auto&&) {}

  virtual double rate(int64_t step) const = 0;
};

/// Threads: immutable; a schedule is called on all replicas' threads and must be a pure function.
class LearningRate {
 public:
  LearningRate(double constant) : constant_(constant) {}  // NOLINT: implicit by design
  template <std::derived_from<ScheduleBase> S>
  LearningRate(std::shared_ptr<S> schedule) : schedule_(std::move(schedule)) {  // NOLINT
    check_schedule();
  }
  template <class F>
  requires(!std::is_arithmetic_v<F> && std::is_invocable_r_v<double, F, int64_t>)
      LearningRate(F schedule)  // NOLINT
      : schedule_(of_function(
            cohort::internal::base::checked_function("[learning_rate]", std::move(schedule)))) {}
  // Copied where it is moved: what was moved from must not read as a rate of 0.
  LearningRate(const LearningRate&) = default;
  LearningRate& operator=(const LearningRate&) = default;

  bool is_schedule() const { return schedule_ != nullptr; }
  double operator()(int64_t step) const { return schedule_ ? schedule_->rate(step) : constant_; }

  /// A number, or the schedule with its class. Errors: Unimplemented for a function.
  Config serialize() const;
  static LearningRate deserialize(const Config& config);
  friend bool operator==(const LearningRate& a, const LearningRate& b) {
    if (a.schedule_ == b.schedule_) return a.constant_ == b.constant_;
    return a.schedule_ != nullptr && b.schedule_ != nullptr &&
           internal::same_description(*a.schedule_, *b.schedule_);
  }

 private:
  static std::shared_ptr<const ScheduleBase> of_function(std::function<double(int64_t)> schedule);
  /// Errors: InvalidArgument for an empty pointer, which must not read as a rate of 0.
  void check_schedule() const;

  double constant_ = 0;
  std::shared_ptr<const ScheduleBase> schedule_;
};

// Errors, of all: InvalidArgument for numbers of steps below 1, and rates, powers and shares that
// are below 0, NaN or infinite.

struct DecayOptions {
  bool staircase = false;  ///< Whole decay periods only.
};
/// initial * decay_rate ^ (step / decay_steps).
LearningRate ExponentialDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options = {});
/// initial / (1 + decay_rate * step / decay_steps).
LearningRate InverseTimeDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options = {});

/// values[i] up to and with step boundaries[i], the last value from there on.
/// Errors: InvalidArgument unless there is one value more than boundaries, and they ascend.
LearningRate PiecewiseConstantDecay(std::vector<int64_t> boundaries, std::vector<double> values);

struct PolynomialDecayOptions {
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;  ///< Start again, over ever longer periods, when decay_steps are over.
};
/// From `initial` to the end rate over decay_steps, as (1 - step / decay_steps) ^ power.
LearningRate PolynomialDecay(double initial, int64_t decay_steps,
                             PolynomialDecayOptions options = {});

struct CosineDecayOptions {
  double alpha = 0;                          ///< The end rate, as a share of the rate at the start.
  std::optional<double> warmup_target = {};  ///< Rise linearly from initial to this rate first,
  int64_t warmup_steps = 0;                  ///< over so many steps.
};
/// Half a cosine over decay_steps, after the warm-up if there is one.
LearningRate CosineDecay(double initial, int64_t decay_steps, CosineDecayOptions options = {});

struct CosineDecayRestartsOptions {
  double t_mul = 2;  ///< Each period is this many times as long as the one before.
  double m_mul = 1;  ///< Each begins at this multiple of the first rate of the one before.
  double alpha = 0;  ///< The lowest rate, as a share of the rate at the start.
};
/// Half cosines, one after another. Errors: InvalidArgument for numbers that make no periods.
LearningRate CosineDecayRestarts(double initial, int64_t first_decay_steps,
                                 CosineDecayRestartsOptions options = {});

namespace internal {
template <>
ClassTable& class_table<ScheduleBase>();
}  // namespace internal

}  // namespace cohort::keras
