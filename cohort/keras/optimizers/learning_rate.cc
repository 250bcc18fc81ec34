// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/option_checks.h"

namespace cohort::keras {
namespace {

using internal::OptionChecks;

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

/// A schedule with its options.
template <class C>
class ScheduleImpl : public ScheduleBase {
 public:
  using Options = C;
  explicit ScheduleImpl(C options) : options_(std::move(options)) {}
  std::string class_name() const override { return internal::class_name_of(typeid(*this), kKind); }
  Config get_config() const override { return config_of(options_); }

 protected:
  const C options_;
};

struct PeriodicDecay {
  double initial = 0;
  int64_t decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f.required("initial_learning_rate", c.initial);
    f.required("decay_steps", c.decay_steps);
    f.required("decay_rate", c.decay_rate);
    f("staircase", c.staircase);
    f("name", c.name);
  }
};

void check_decay(const char* schedule, const PeriodicDecay& o) {
  check_steps(schedule, o.decay_steps);
  const OptionChecks check(schedule);
  check.not_negative("initial_learning_rate", o.initial);
  check.not_negative("decay_rate", o.decay_rate);
}

class ExponentialDecaySchedule final : public ScheduleImpl<PeriodicDecay> {
 public:
  explicit ExponentialDecaySchedule(PeriodicDecay options) : ScheduleImpl(std::move(options)) {
    check_decay("exponential_decay", options_);
  }
  double rate(int64_t step) const override {
    const double p = periods(step, options_.decay_steps, options_.staircase);
    return options_.initial * std::pow(options_.decay_rate, p);
  }
};

class InverseTimeDecaySchedule final : public ScheduleImpl<PeriodicDecay> {
 public:
  explicit InverseTimeDecaySchedule(PeriodicDecay options) : ScheduleImpl(std::move(options)) {
    check_decay("inverse_time_decay", options_);
  }
  double rate(int64_t step) const override {
    const double p = periods(step, options_.decay_steps, options_.staircase);
    return options_.initial / (1 + options_.decay_rate * p);
  }
};

struct PiecewiseConstantOptions {
  std::vector<int64_t> boundaries = {};
  std::vector<double> values = {};
  std::string name = "PiecewiseConstant";
  static void fields(auto& c, auto&& f) {
    f.required("boundaries", c.boundaries);
    f.required("values", c.values);
    f("name", c.name);
  }
};

class PiecewiseConstantDecaySchedule final : public ScheduleImpl<PiecewiseConstantOptions> {
 public:
  explicit PiecewiseConstantDecaySchedule(PiecewiseConstantOptions options)
      : ScheduleImpl(std::move(options)) {
    const auto& [boundaries, values, name] = options_;
    COHORT_CHECK_ARG(values.size() == boundaries.size() + 1, "[piecewise_constant_decay] expected ",
                     boundaries.size() + 1, " values, one more than the ", boundaries.size(),
                     " boundaries, got ", values.size());
    COHORT_CHECK_ARG(std::is_sorted(boundaries.begin(), boundaries.end()),
                     "[piecewise_constant_decay] expected ascending boundaries, got ",
                     bracketed(boundaries));
    for (const double value : values) {
      OptionChecks("piecewise_constant_decay").not_negative("values", value);
    }
  }
  double rate(int64_t step) const override {
    const auto& all = options_.boundaries;
    const auto at = std::lower_bound(all.begin(), all.end(), step);
    return options_.values[static_cast<std::size_t>(at - all.begin())];
  }
};

struct PolynomialOptions : PolynomialDecayOptions {
  double initial = 0;
  int64_t decay_steps = 0;
  std::string name = "PolynomialDecay";
  static void fields(auto& c, auto&& f) {
    f.required("initial_learning_rate", c.initial);
    f.required("decay_steps", c.decay_steps);
    f("end_learning_rate", c.end_learning_rate);
    f("power", c.power);
    f("cycle", c.cycle);
    f("name", c.name);
  }
};

class PolynomialDecaySchedule final : public ScheduleImpl<PolynomialOptions> {
 public:
  explicit PolynomialDecaySchedule(PolynomialOptions options) : ScheduleImpl(std::move(options)) {
    check_steps("polynomial_decay", options_.decay_steps);
    const OptionChecks check("polynomial_decay");
    check.not_negative("initial_learning_rate", options_.initial);
    check.not_negative("end_learning_rate", options_.end_learning_rate);
    check.not_negative("power", options_.power);
  }
  double rate(int64_t step) const override {
    double position = static_cast<double>(step);
    double length = static_cast<double>(options_.decay_steps);
    if (options_.cycle) {
      length *= std::max(1.0, std::ceil(position / length));
    } else {
      position = std::min(position, length);
    }
    const double end = options_.end_learning_rate;
    return (options_.initial - end) * std::pow(1 - position / length, options_.power) + end;
  }
};

struct CosineOptions : CosineDecayOptions {
  double initial = 0;
  int64_t decay_steps = 0;
  std::string name = "CosineDecay";
  static void fields(auto& c, auto&& f) {
    f.required("initial_learning_rate", c.initial);
    f.required("decay_steps", c.decay_steps);
    f("alpha", c.alpha);
    f("name", c.name);
    f("warmup_target", c.warmup_target);
    f("warmup_steps", c.warmup_steps);
  }
};

class CosineDecaySchedule final : public ScheduleImpl<CosineOptions> {
 public:
  explicit CosineDecaySchedule(CosineOptions options) : ScheduleImpl(std::move(options)) {
    check_steps("cosine_decay", options_.decay_steps);
    COHORT_CHECK_ARG(!options_.warmup_target || options_.warmup_steps > 0,
                     "[cosine_decay] expected warmup_steps above 0 with a warmup_target, got ",
                     options_.warmup_steps);
    const OptionChecks check("cosine_decay");
    check.not_negative("initial_learning_rate", options_.initial);
    check.not_negative("alpha", options_.alpha);
    check.not_negative("warmup_target", options_.warmup_target);
  }
  double rate(int64_t step) const override {
    const double initial = options_.initial;
    const int64_t warmup = options_.warmup_target ? options_.warmup_steps : 0;
    const double target = options_.warmup_target.value_or(initial);
    if (step < warmup) {
      return initial + (target - initial) * static_cast<double>(step) / static_cast<double>(warmup);
    }
    const int64_t decayed = std::min(step - warmup, options_.decay_steps);
    return cosine(target, options_.alpha,
                  static_cast<double>(decayed) / static_cast<double>(options_.decay_steps));
  }
};

struct CosineRestartsOptions : CosineDecayRestartsOptions {
  double initial = 0;
  int64_t first_decay_steps = 0;
  std::string name = "SGDRDecay";  // so Keras calls it
  static void fields(auto& c, auto&& f) {
    f.required("initial_learning_rate", c.initial);
    f.required("first_decay_steps", c.first_decay_steps);
    f("t_mul", c.t_mul);
    f("m_mul", c.m_mul);
    f("alpha", c.alpha);
    f("name", c.name);
  }
};

class CosineDecayRestartsSchedule final : public ScheduleImpl<CosineRestartsOptions> {
 public:
  explicit CosineDecayRestartsSchedule(CosineRestartsOptions options)
      : ScheduleImpl(std::move(options)) {
    check_steps("cosine_decay_restarts", options_.first_decay_steps);
    COHORT_CHECK_ARG(options_.t_mul >= 1 && std::isfinite(options_.t_mul),
                     "[cosine_decay_restarts] expected t_mul of 1 or more and finite, got ",
                     options_.t_mul);
    const OptionChecks check("cosine_decay_restarts");
    check.not_negative("initial_learning_rate", options_.initial);
    check.not_negative("m_mul", options_.m_mul);
    check.not_negative("alpha", options_.alpha);
  }
  double rate(int64_t step) const override {
    const double t = options_.t_mul;
    double position = static_cast<double>(step) / static_cast<double>(options_.first_decay_steps);
    double restarts = std::floor(position);
    if (t == 1) {
      position -= restarts;
    } else {
      restarts = std::floor(std::log(1 - position * (1 - t)) / std::log(t));
      // The quotient of two logarithms may lie beneath the whole number that it is.
      if (position >= (1 - std::pow(t, restarts + 1)) / (1 - t)) ++restarts;
      const double length = std::pow(t, restarts);
      position = (position - (1 - length) / (1 - t)) / length;
    }
    const double height = 0.5 * std::pow(options_.m_mul, restarts);
    const double share = height * (1 + std::cos(M_PI * position));
    return options_.initial * ((1 - options_.alpha) * share + options_.alpha);
  }
};

/// A function of the program, which no file can hold.
class FunctionSchedule final : public ScheduleBase {
 public:
  explicit FunctionSchedule(std::function<double(int64_t)> function)
      : function_(std::move(function)) {}
  double rate(int64_t step) const override { return function_(step); }
  Config get_config() const override {
    throw Unimplemented(
        "[learning_rate.get_config] expected a number or a schedule with a class, got a function: "
        "derive from keras::ScheduleBase and register the class");
  }

 private:
  const std::function<double(int64_t)> function_;
};

}  // namespace

namespace internal {
template <>
ClassTable& class_table<ScheduleBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(ScheduleBase::kKind, "keras.optimizers.schedules");
    all->add_builtin<CosineDecaySchedule>();
    all->add_builtin<CosineDecayRestartsSchedule>();
    all->add_builtin<ExponentialDecaySchedule>();
    all->add_builtin<InverseTimeDecaySchedule>();
    all->add_builtin<PiecewiseConstantDecaySchedule>();
    all->add_builtin<PolynomialDecaySchedule>();
    return all;
  }();
  return *table;
}
}  // namespace internal

void LearningRate::check_schedule() const {
  COHORT_CHECK_ARG(schedule_ != nullptr,
                   "[learning_rate] expected a schedule, got an empty pointer");
}

std::shared_ptr<const ScheduleBase> LearningRate::of_function(
    std::function<double(int64_t)> schedule) {
  return std::make_shared<const FunctionSchedule>(std::move(schedule));
}

Config LearningRate::serialize() const {
  if (schedule_ == nullptr) return constant_;
  return internal::class_table<ScheduleBase>().serialize(*schedule_);
}

LearningRate LearningRate::deserialize(const Config& config) {
  if (config.is_number()) return config.number();
  return std::static_pointer_cast<ScheduleBase>(
      internal::class_table<ScheduleBase>().deserialize(config));
}

LearningRate ExponentialDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options) {
  return std::make_shared<const ExponentialDecaySchedule>(
      PeriodicDecay{initial, decay_steps, decay_rate, options.staircase, "ExponentialDecay"});
}

LearningRate InverseTimeDecay(double initial, int64_t decay_steps, double decay_rate,
                              DecayOptions options) {
  return std::make_shared<const InverseTimeDecaySchedule>(
      PeriodicDecay{initial, decay_steps, decay_rate, options.staircase, "InverseTimeDecay"});
}

LearningRate PiecewiseConstantDecay(std::vector<int64_t> boundaries, std::vector<double> values) {
  return std::make_shared<const PiecewiseConstantDecaySchedule>(
      PiecewiseConstantOptions{std::move(boundaries), std::move(values)});
}

LearningRate PolynomialDecay(double initial, int64_t decay_steps, PolynomialDecayOptions options) {
  return std::make_shared<const PolynomialDecaySchedule>(
      PolynomialOptions{options, initial, decay_steps});
}

LearningRate CosineDecay(double initial, int64_t decay_steps, CosineDecayOptions options) {
  return std::make_shared<const CosineDecaySchedule>(CosineOptions{options, initial, decay_steps});
}

LearningRate CosineDecayRestarts(double initial, int64_t first_decay_steps,
                                 CosineDecayRestartsOptions options) {
  return std::make_shared<const CosineDecayRestartsSchedule>(
      CosineRestartsOptions{options, initial, first_decay_steps});
}

}  // namespace cohort::keras
