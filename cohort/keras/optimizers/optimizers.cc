// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizers.h"

#include <algorithm>
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/classes.h"
#include "cohort/keras/optimizers/internal/option_checks.h"
#include "cohort/keras/optimizers/internal/rule_optimizer.h"
#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/keras/optimizers/whole_variable.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

using internal::CommonOptions;
using internal::OptionChecks;
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

std::vector<Variable> joined(const std::vector<std::vector<Variable>>& lists) {
  std::vector<Variable> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// A rule with its options.
template <class C>
class OptimizerImpl : public RuleOptimizer {
 public:
  using Options = C;
  OptimizerImpl(const C& o, const char* standard_name, Slots slots)
      : RuleOptimizer(o.learning_rate, name_of(o, standard_name), common_of(o), std::move(slots)),
        options_(o) {}
  Config get_config() const override {
    C now = options_;
    now.name = name();
    now.learning_rate = current_rate();
    return internal::full_config<OptimizerBase>(now);
  }

 protected:
  const C options_;
};

/// One whose steps are alike, but for their learning rate.
template <class C>
class EvenRule : public OptimizerImpl<C> {
 public:
  using OptimizerImpl<C>::OptimizerImpl;

 private:
  bool needs_step() const final { return false; }
};

class SGDOptimizer final : public EvenRule<SGDOptions> {
 public:
  explicit SGDOptimizer(const SGDOptions& o)
      : EvenRule(o, "sgd", o.momentum > 0 ? Slots{{"momentum"}} : Slots{}) {
    OptionChecks(name()).in_unit("momentum", o.momentum);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    if (options_.momentum == 0) return update_rules::SgdStep{rate};
    return update_rules::MomentumStep{rate, options_.momentum, options_.nesterov};
  }
};

template <class Options>
update_rules::AdamConfig adam_config(const Options& o, double rate) {
  return {.learning_rate = rate, .beta_1 = o.beta_1, .beta_2 = o.beta_2, .epsilon = o.epsilon};
}

template <class C>
class AdamRule : public OptimizerImpl<C> {
 public:
  AdamRule(const C& o, const char* standard_name)
      : OptimizerImpl<C>(o, standard_name,
                         o.amsgrad ? Slots{{"momentum"}, {"velocity"}, {"velocity_hat"}}
                                   : Slots{{"momentum"}, {"velocity"}}) {
    const OptionChecks check(this->name());
    check.below_one("beta_1", o.beta_1);
    check.below_one("beta_2", o.beta_2);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  Rule rule(double rate, int64_t step) const override {
    update_rules::AdamConfig config = adam_config(this->options_, rate);
    config.amsgrad = this->options_.amsgrad;
    return update_rules::adam_step(config, step + 1);
  }
  std::vector<Variable> stored_slots() const override {
    return joined(
        {this->slots_named({"momentum", "velocity"}), this->slots_named({"velocity_hat"})});
  }
};

struct AdamOptimizer final : AdamRule<AdamOptions> {
  explicit AdamOptimizer(const AdamOptions& o) : AdamRule(o, "adam") {}
};

/// Decays unless it is told how.
struct AdamWDefaults : AdamOptions {
  AdamWDefaults() { weight_decay = kDecay; }
  explicit AdamWDefaults(AdamOptions o) : AdamOptions(std::move(o)) {
    if (!weight_decay) weight_decay = kDecay;
  }
  static constexpr double kDecay = 0.004;
};

struct AdamWOptimizer final : AdamRule<AdamWDefaults> {
  explicit AdamWOptimizer(const AdamWDefaults& o) : AdamRule(o, "adamw") {
    COHORT_CHECK_ARG(o.weight_decay.has_value(),
                     "[adamw] expected a weight_decay, got none; Adam is without");
  }
};

Slots rmsprop_slots(const RMSpropOptions& o) {
  Slots slots{{"velocity"}};
  if (o.centered || o.momentum > 0) slots.push_back({"average_gradient", 0, o.centered});
  if (o.momentum > 0) slots.push_back({"momentum"});
  return slots;
}

class RMSpropOptimizer final : public EvenRule<RMSpropOptions> {
 public:
  explicit RMSpropOptimizer(const RMSpropOptions& o) : EvenRule(o, "rmsprop", rmsprop_slots(o)) {
    const OptionChecks check(name());
    check.in_unit("rho", o.rho);
    check.in_unit("momentum", o.momentum);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::RmspropStep{rate, options_.rho, options_.momentum, options_.epsilon,
                                     options_.centered};
  }
  std::vector<Variable> stored_slots() const override {
    return joined(
        {slots_named({"velocity"}), slots_named({"momentum"}), slots_named({"average_gradient"})});
  }
};

class AdagradOptimizer final : public EvenRule<AdagradOptions> {
 public:
  explicit AdagradOptimizer(const AdagradOptions& o)
      : EvenRule(o, "adagrad", {{"accumulator", o.initial_accumulator_value}}) {
    const OptionChecks check(name());
    check.not_negative("initial_accumulator_value", o.initial_accumulator_value);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::AdagradStep{rate, options_.epsilon};
  }
};

class AdadeltaOptimizer final : public EvenRule<AdadeltaOptions> {
 public:
  explicit AdadeltaOptimizer(const AdadeltaOptions& o)
      : EvenRule(o, "adadelta", {{"accumulated_grad"}, {"accumulated_delta_var"}}) {
    const OptionChecks check(name());
    check.in_unit("rho", o.rho);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::AdadeltaStep{rate, options_.rho, options_.epsilon};
  }
};

class AdamaxOptimizer final : public OptimizerImpl<AdamaxOptions> {
 public:
  explicit AdamaxOptimizer(const AdamaxOptions& o)
      : OptimizerImpl(o, "adamax", {{"momentum"}, {"norm"}}) {
    const OptionChecks check(name());
    check.below_one("beta_1", o.beta_1);
    check.in_unit("beta_2", o.beta_2);  // nothing is divided by
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  Rule rule(double rate, int64_t step) const override {
    return update_rules::adamax_step(adam_config(options_, rate), step + 1);
  }
};

class NadamOptimizer final : public OptimizerImpl<NadamOptions> {
 public:
  explicit NadamOptimizer(const NadamOptions& o)
      : OptimizerImpl(o, "nadam", {{"momentum"}, {"velocity"}}) {
    const OptionChecks check(name());
    check.in_unit("beta_1", o.beta_1);  // its product is never 1
    check.below_one("beta_2", o.beta_2);
    check.not_negative("epsilon", o.epsilon);
  }

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
  // Keras's file has the product, too.
  std::vector<Variable> stored_slots() const override {
    const auto product = [this] {
      Product all;
      const update_rules::AdamConfig config = adam_config(options_, learning_rate());
      const auto steps = iterations().value().item<int64_t>();
      while (all.step < steps) nadam_step(config, ++all.step, all.value);
      return scalar(all.value, kFloat32);
    };
    const Variable stored =
        internal::state_variable({.name = name() + "/u_product", .dtype = kFloat32},
                                 {.read = product, .write = [](const Tensor&) {}});
    return joined({slots_named({"momentum", "velocity"}), {stored}});
  }

  mutable std::vector<Product> products_;  // each replica its own
};

class FtrlOptimizer final : public EvenRule<FtrlOptions> {
 public:
  explicit FtrlOptimizer(const FtrlOptions& o)
      : EvenRule(o, "ftrl", {{"accumulator", o.initial_accumulator_value}, {"linear"}}) {
    const OptionChecks check(name());
    check.not_positive("learning_rate_power", o.learning_rate_power);
    check.not_negative("initial_accumulator_value", o.initial_accumulator_value);
    check.not_negative("l1_regularization_strength", o.l1_regularization_strength);
    check.not_negative("l2_regularization_strength", o.l2_regularization_strength);
    check.not_negative("l2_shrinkage_regularization_strength",
                       o.l2_shrinkage_regularization_strength);
    check.not_negative("beta", o.beta);
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
};

class LionOptimizer final : public EvenRule<LionOptions> {
 public:
  explicit LionOptimizer(const LionOptions& o) : EvenRule(o, "lion", {{"momentum"}}) {
    COHORT_CHECK_ARG(o.beta_1 > 0 && o.beta_1 <= 1, "[", name(),
                     "] expected beta_1 in (0, 1], got ", o.beta_1);
    OptionChecks(name()).in_unit("beta_2", o.beta_2);
  }

 private:
  Rule rule(double rate, int64_t) const override {
    return update_rules::LionStep{rate, options_.beta_1, options_.beta_2};
  }
};

struct Named {
  std::array<const char*, 2> names;
  Optimizer (*make)();
};

const std::array<Named, 13>& named_optimizers() {
  static const std::array<Named, 13> optimizers = {{
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
      {{"lamb", "Lamb"}, [] { return Optimizer(Lamb()); }},
      {{"adafactor", "Adafactor"}, [] { return Optimizer(Adafactor()); }},
      {{"muon", "Muon"}, [] { return Optimizer(Muon()); }},
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

}  // namespace

SGD::SGD(SGDOptions options) : Optimizer(std::make_shared<SGDOptimizer>(options)) {}
Adam::Adam(AdamOptions options) : Optimizer(std::make_shared<AdamOptimizer>(options)) {}
AdamW::AdamW(AdamOptions options)
    : Optimizer(std::make_shared<AdamWOptimizer>(AdamWDefaults(std::move(options)))) {}
RMSprop::RMSprop(RMSpropOptions options) : Optimizer(std::make_shared<RMSpropOptimizer>(options)) {}
Adagrad::Adagrad(AdagradOptions options) : Optimizer(std::make_shared<AdagradOptimizer>(options)) {}
Adadelta::Adadelta(AdadeltaOptions options)
    : Optimizer(std::make_shared<AdadeltaOptimizer>(options)) {}
Adamax::Adamax(AdamaxOptions options) : Optimizer(std::make_shared<AdamaxOptimizer>(options)) {}
Nadam::Nadam(NadamOptions options) : Optimizer(std::make_shared<NadamOptimizer>(options)) {}
Ftrl::Ftrl(FtrlOptions options) : Optimizer(std::make_shared<FtrlOptimizer>(options)) {}
Lion::Lion(LionOptions options) : Optimizer(std::make_shared<LionOptimizer>(options)) {}

namespace internal {
template <>
ClassTable& class_table<OptimizerBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(OptimizerBase::kKind, "keras.optimizers");
    all->add_builtin<AdadeltaOptimizer>();
    all->add_builtin<AdagradOptimizer>();
    all->add_builtin<AdamOptimizer>();
    all->add_builtin<AdamWOptimizer>();
    all->add_builtin<AdamaxOptimizer>();
    all->add_builtin<FtrlOptimizer>();
    all->add_builtin<LionOptimizer>();
    all->add_builtin<NadamOptimizer>();
    all->add_builtin<RMSpropOptimizer>();
    all->add_builtin<SGDOptimizer>();
    add_loss_scale_optimizer(*all);
    add_whole_variable_optimizers(*all);
    return all;
  }();
  return *table;
}
}  // namespace internal

std::string OptimizerBase::class_name() const {
  return internal::class_name_of(typeid(*this), kKind);
}

Config Optimizer::serialize() const {
  if (optimizer_ == nullptr) return {};
  return internal::class_table<OptimizerBase>().serialize(*optimizer_);
}

Optimizer Optimizer::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  return std::static_pointer_cast<OptimizerBase>(
      internal::class_table<OptimizerBase>().deserialize(config));
}

Optimizer::Optimizer(const char* name) : Optimizer(from_name(name)) {}
Optimizer::Optimizer(const std::string& name) : Optimizer(from_name(name)) {}

}  // namespace cohort::keras
