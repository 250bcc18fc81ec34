// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizers.h"

#include <algorithm>
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/rule_optimizer.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

using internal::CommonOptions;
using internal::RuleOptimizer;
using internal::SlotSpec;
using update_rules::Rule;

template <class Options>
CommonOptions common_of(const Options& o) {
  return {o.weight_decay,
          o.clipnorm,
          o.clipvalue,
          o.global_clipnorm,
          o.exclude_from_weight_decay,
          {o.gradient_accumulation_steps, o.use_ema, o.ema_momentum, o.ema_overwrite_frequency},
          o.lazy_rows};
}

template <class Options>
std::string name_of(const Options& o, const char* standard) {
  return o.name.empty() ? standard : o.name;
}

using Slots = std::vector<SlotSpec>;

class SgdRule final : public RuleOptimizer {
 public:
  explicit SgdRule(const SGDOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "sgd"), common_of(o),
                      o.momentum > 0 ? Slots{{"momentum"}} : Slots{}),
        options_(o) {
    COHORT_CHECK_ARG(o.momentum >= 0 && o.momentum <= 1, "[sgd] expected momentum in [0, 1], got ",
                     o.momentum);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    if (options_.momentum == 0) return update_rules::SgdStep{rate};
    return update_rules::MomentumStep{rate, options_.momentum, options_.nesterov};
  }
  const SGDOptions options_;
};

template <class Options>
update_rules::AdamConfig adam_config(const Options& o, double rate) {
  return {.learning_rate = rate, .beta_1 = o.beta_1, .beta_2 = o.beta_2, .epsilon = o.epsilon};
}

class AdamRule final : public RuleOptimizer {
 public:
  AdamRule(const AdamOptions& o, const char* standard_name)
      : RuleOptimizer(o.learning_rate, name_of(o, standard_name), common_of(o),
                      o.amsgrad ? Slots{{"momentum"}, {"velocity"}, {"velocity_hat"}}
                                : Slots{{"momentum"}, {"velocity"}}),
        options_(o) {}

 private:
  Rule rule(double rate, int64_t step) const override {
    update_rules::AdamConfig config = adam_config(options_, rate);
    config.amsgrad = options_.amsgrad;
    return update_rules::adam_step(config, step + 1);
  }
  const AdamOptions options_;
};

Slots rmsprop_slots(const RMSpropOptions& o) {
  Slots slots{{"velocity"}};
  if (o.centered || o.momentum > 0) slots.push_back({"average_gradient", 0, o.centered});
  if (o.momentum > 0) slots.push_back({"momentum"});
  return slots;
}

class RmspropRule final : public RuleOptimizer {
 public:
  explicit RmspropRule(const RMSpropOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "rmsprop"), common_of(o), rmsprop_slots(o)),
        options_(o) {}

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::RmspropStep{rate, options_.rho, options_.momentum, options_.epsilon,
                                     options_.centered};
  }
  const RMSpropOptions options_;
};

class AdagradRule final : public RuleOptimizer {
 public:
  explicit AdagradRule(const AdagradOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "adagrad"), common_of(o),
                      {{"accumulator", o.initial_accumulator_value}}),
        epsilon_(o.epsilon) {}

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::AdagradStep{rate, epsilon_};
  }
  const double epsilon_;
};

class AdadeltaRule final : public RuleOptimizer {
 public:
  explicit AdadeltaRule(const AdadeltaOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "adadelta"), common_of(o),
                      {{"accumulated_grad"}, {"accumulated_delta_var"}}),
        options_(o) {}

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::AdadeltaStep{rate, options_.rho, options_.epsilon};
  }
  const AdadeltaOptions options_;
};

class AdamaxRule final : public RuleOptimizer {
 public:
  explicit AdamaxRule(const AdamaxOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "adamax"), common_of(o),
                      {{"momentum"}, {"norm"}}),
        options_(o) {}

 private:
  Rule rule(double rate, int64_t step) const override {
    return update_rules::adamax_step(adam_config(options_, rate), step + 1);
  }
  const AdamaxOptions options_;
};

class NadamRule final : public RuleOptimizer {
 public:
  explicit NadamRule(const NadamOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "nadam"), common_of(o),
                      {{"momentum"}, {"velocity"}}),
        options_(o) {}

 private:
  // u_1 ... u_step; a function of the step alone, so that no state has to be saved for it.
  struct alignas(64) Product {
    int64_t step = 0;
    double value = 1;
  };

  void prepare(int replicas) override {
    products_.assign(static_cast<std::size_t>(replicas), Product());
  }
  Rule rule(double rate, int64_t step) const override {
    const update_rules::AdamConfig config = adam_config(options_, rate);
    Product& product = products_[static_cast<std::size_t>(std::max(0, current_replica()))];
    if (product.step > step) product = {};
    while (product.step < step) nadam_step(config, ++product.step, product.value);
    double next = product.value;
    return nadam_step(config, step + 1, next);
  }
  const NadamOptions options_;
  mutable std::vector<Product> products_;  // each replica its own
};

class FtrlRule final : public RuleOptimizer {
 public:
  explicit FtrlRule(const FtrlOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "ftrl"), common_of(o),
                      {{"accumulator", o.initial_accumulator_value}, {"linear"}}),
        options_(o) {
    COHORT_CHECK_ARG(o.learning_rate_power <= 0,
                     "[ftrl] expected learning_rate_power of 0 or less, got ",
                     o.learning_rate_power);
    for (const double number :
         {o.initial_accumulator_value, o.l1_regularization_strength, o.l2_regularization_strength,
          o.l2_shrinkage_regularization_strength}) {
      COHORT_CHECK_ARG(number >= 0,
                       "[ftrl] expected initial_accumulator_value and regularization strengths of "
                       "0 or more, got ",
                       number);
    }
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::FtrlStep{.learning_rate = rate,
                                  .learning_rate_power = options_.learning_rate_power,
                                  .l1 = options_.l1_regularization_strength,
                                  .l2 = options_.l2_regularization_strength,
                                  .l2_shrinkage = options_.l2_shrinkage_regularization_strength,
                                  .beta = options_.beta};
  }
  const FtrlOptions options_;
};

class LionRule final : public RuleOptimizer {
 public:
  explicit LionRule(const LionOptions& o)
      : RuleOptimizer(o.learning_rate, name_of(o, "lion"), common_of(o), {{"momentum"}}),
        options_(o) {
    COHORT_CHECK_ARG(o.beta_1 > 0 && o.beta_1 <= 1, "[lion] expected beta_1 in (0, 1], got ",
                     o.beta_1);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::LionStep{rate, options_.beta_1, options_.beta_2};
  }
  const LionOptions options_;
};

struct Named {
  std::array<const char*, 2> names;
  Optimizer (*make)();
};

const std::array<Named, 10>& named_optimizers() {
  static const std::array<Named, 10> optimizers = {{
      {{"sgd", "SGD"}, [] { return Optimizer(SGD()); }},
      {{"adam", "Adam"}, [] { return Optimizer(Adam()); }},
      {{"adamw", "AdamW"}, [] { return Optimizer(AdamW()); }},
      {{"rmsprop", "RMSprop"}, [] { return Optimizer(RMSprop()); }},
      {{"adagrad", "Adagrad"}, [] { return Optimizer(Adagrad()); }},
      {{"adadelta", "Adadelta"}, [] { return Optimizer(Adadelta()); }},
      {{"adamax", "Adamax"}, [] { return Optimizer(Adamax()); }},
      {{"nadam", "Nadam"}, [] { return Optimizer(Nadam()); }},
      {{"ftrl", "Ftrl"}, [] { return Optimizer(Ftrl()); }},
      {{"lion", "Lion"}, [] { return Optimizer(Lion()); }},
  }};
  return optimizers;
}

Optimizer from_name(const std::string& name) {
  std::string known;
  for (const Named& optimizer : named_optimizers()) {
    for (const char* candidate : optimizer.names) {
      if (name == candidate) return optimizer.make();
    }
    known += known.empty() ? "" : ", ";
    known += optimizer.names[0];
  }
  throw InvalidArgument(str_cat("[optimizer] expected one of ", known, ", got \"", name, "\""));
}

AdamOptions decayed(AdamOptions options) {
  if (!options.weight_decay) options.weight_decay = 0.004;
  return options;
}

}  // namespace

SGD::SGD(SGDOptions options) : Optimizer(std::make_shared<SgdRule>(options)) {}
Adam::Adam(AdamOptions options) : Optimizer(std::make_shared<AdamRule>(options, "adam")) {}
AdamW::AdamW(AdamOptions options)
    : Optimizer(std::make_shared<AdamRule>(decayed(std::move(options)), "adamw")) {}
RMSprop::RMSprop(RMSpropOptions options) : Optimizer(std::make_shared<RmspropRule>(options)) {}
Adagrad::Adagrad(AdagradOptions options) : Optimizer(std::make_shared<AdagradRule>(options)) {}
Adadelta::Adadelta(AdadeltaOptions options) : Optimizer(std::make_shared<AdadeltaRule>(options)) {}
Adamax::Adamax(AdamaxOptions options) : Optimizer(std::make_shared<AdamaxRule>(options)) {}
Nadam::Nadam(NadamOptions options) : Optimizer(std::make_shared<NadamRule>(options)) {}
Ftrl::Ftrl(FtrlOptions options) : Optimizer(std::make_shared<FtrlRule>(options)) {}
Lion::Lion(LionOptions options) : Optimizer(std::make_shared<LionRule>(options)) {}

Optimizer::Optimizer(const char* name) : Optimizer(from_name(name)) {}
Optimizer::Optimizer(const std::string& name) : Optimizer(from_name(name)) {}

}  // namespace cohort::keras
