// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizers.h"

#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/rule_optimizer.h"

namespace cohort::keras {
namespace {

using internal::CommonOptions;
using internal::RuleOptimizer;
using internal::SlotSpec;
using update_rules::Rule;

template <class Options>
CommonOptions common_of(const Options& o) {
  return {o.weight_decay, o.clipnorm, o.clipvalue, o.global_clipnorm, o.exclude_from_weight_decay};
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

class AdamRule final : public RuleOptimizer {
 public:
  AdamRule(const AdamOptions& o, const char* standard_name)
      : RuleOptimizer(o.learning_rate, name_of(o, standard_name), common_of(o),
                      o.amsgrad ? Slots{{"momentum"}, {"velocity"}, {"velocity_hat"}}
                                : Slots{{"momentum"}, {"velocity"}}),
        options_(o) {}

 private:
  Rule rule(double rate, int64_t step) const override {
    return update_rules::adam_step({.learning_rate = rate,
                                    .beta_1 = options_.beta_1,
                                    .beta_2 = options_.beta_2,
                                    .epsilon = options_.epsilon,
                                    .amsgrad = options_.amsgrad},
                                   step + 1);
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

struct Named {
  std::array<const char*, 2> names;
  Optimizer (*make)();
};

const std::array<Named, 5>& named_optimizers() {
  static const std::array<Named, 5> optimizers = {{
      {{"sgd", "SGD"}, [] { return Optimizer(SGD()); }},
      {{"adam", "Adam"}, [] { return Optimizer(Adam()); }},
      {{"adamw", "AdamW"}, [] { return Optimizer(AdamW()); }},
      {{"rmsprop", "RMSprop"}, [] { return Optimizer(RMSprop()); }},
      {{"adagrad", "Adagrad"}, [] { return Optimizer(Adagrad()); }},
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

Optimizer::Optimizer(const char* name) : Optimizer(from_name(name)) {}
Optimizer::Optimizer(const std::string& name) : Optimizer(from_name(name)) {}

}  // namespace cohort::keras
