// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/whole_variable.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/classes.h"
#include "cohort/keras/optimizers/internal/option_checks.h"
#include "cohort/keras/optimizers/internal/rows_stay.h"
#include "cohort/keras/optimizers/internal/rule_optimizer.h"
#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/variable_impl.h"
#include "cohort/variables/whole_step.h"
#include "cohort/variables/whole_updater.h"

namespace cohort::keras {
namespace {

using namespace cohort::internal::variables;  // NOLINT(google-build-using-namespace): the steps

constexpr const char* kOwnSlots = "slots of its own class";

/// What surrounds the rules of this file: clipping, weight decay, slots.
template <class C>
class WholeVariableOptimizer : public OptimizerBase {
 public:
  using Options = C;
  WholeVariableOptimizer(const C& o, const char* standard_name, std::vector<const char*> slot_names)
      : OptimizerBase(
            o.learning_rate, o.name.empty() ? standard_name : o.name,
            {o.gradient_accumulation_steps, o.use_ema, o.ema_momentum, o.ema_overwrite_frequency}),
        options_(o),
        slot_names_(std::move(slot_names)) {
    internal::OptionChecks(name()).common(o);
  }

  Config get_config() const override {
    C now = options_;
    now.name = name();
    now.learning_rate = current_rate();
    return internal::full_config<OptimizerBase>(now);
  }

  void see_gradients(const std::vector<Tensor>& gradients) final {
    double& scale = scales_[this_replica()].value;
    scale = 1;
    const auto norm = internal::clip_of(options_.global_clipnorm);
    if (!norm) return;
    double squares = 0;
    for (const Tensor& g : gradients) {
      if (g.defined()) squares += g.square().sum(kFloat64).template item<double>();
    }
    scale = update_rules::global_norm_clip_scale(std::sqrt(squares), *norm);
  }

  void update(const Variable& variable, const Gradient& gradient) final {
    const std::size_t i = index_of(variable);
    if (remote_ != nullptr) return apply(Gradients({{gradient, trained()[i]}}), {});
    const double rate = learning_rate();
    WholeRule rule = rule_of(i, rate, step() + 1);
    WholeRows at{variable.value(), {}};
    for (const Variable& slot : slots_[i]) at.slots.push_back(slot.value());
    WholeGradient by{.gradient = clipped(gradient.as_tensor().to(variable.dtype()))};
    prepare(rule, by, at.slots[0]);
    const Tensor w = decayed(at.value, decay_now(i, rate));
    const WholeUpdate u = update_of(rule, at, by);
    if (needs_sums(rule)) {
      resolve(rule, {sum_of_squares(w), sum_of_squares(u.update)}, w.numel());
    }
    for (std::size_t s = 0; s < u.slots.size(); ++s) {
      if (u.slots[s].defined()) slots_[i][s].assign(u.slots[s]);
    }
    variable.assign(w - u.update * factor_of(rule));
  }

 protected:
  void on_build(std::span<const Variable> variables) final {
    scales_.assign(static_cast<std::size_t>(replicas()), {});
    slots_.clear();
    remote_slots_.clear();
    remote_.reset();
    std::vector<std::vector<SlotForm>> forms;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      forms.push_back(slot_forms(rule_of(i, 0, 1), variables[i].shape()));
    }
    internal::check_rows_stay(name(), variables, kOwnSlots);
    remote_ = store_of("[optimizer.build] ", variables.front())
                  .make_whole_updater(std::vector<Variable>(variables.begin(), variables.end()),
                                      name(), forms);
    if (remote_ != nullptr) return make_remote_slots(variables, forms);
    for (std::size_t i = 0; i < variables.size(); ++i) {
      std::vector<Variable>& slots = slots_.emplace_back();
      for (std::size_t s = 0; s < forms[i].size(); ++s) {
        slots.push_back(
            add_slot(variables[i], slot_names_[s], 0, shape_of(forms[i][s], variables[i].shape())));
      }
    }
  }
  void apply(const Gradients& gradients, const ApplyOptions& options) final {
    if (remote_ == nullptr) return OptimizerBase::apply(gradients, options);
    internal::check_rows_stay(name(), trained(), kOwnSlots);  // a table may be of after build()
    std::vector<Tensor> all(trained().size());
    for (const GradientAndVariable& pair : gradients) {
      if (!pair.gradient.has_value()) continue;
      Tensor& g = all[index_of(pair.variable)];
      COHORT_CHECK_ARG(!g.defined(),
                       "[optimizer.apply_gradients] expected each variable once, got ",
                       label(pair.variable.impl()), " twice");
      g = pair.gradient.as_tensor().detach();
    }
    see_gradients(all);
    push(all);
  }
  std::vector<SlotVariable> slot_variables() const final {
    return remote_ == nullptr ? OptimizerBase::slot_variables() : remote_slots_;
  }

  /// The variable's rule in step `step`, which counts from 1.
  virtual WholeRule rule_of(std::size_t i, double rate, int64_t step) const = 0;
  /// What the rule brings beside the gradient, which takes the whole of it. first_slot: as it is.
  virtual void prepare(WholeRule& /*rule*/, WholeGradient& /*by*/,
                       const Tensor& /*first_slot*/) const {}
  /// Whether prepare() needs it.
  virtual bool needs_first_slot(const WholeRule& /*rule*/, const Tensor& /*gradient*/) const {
    return false;
  }
  virtual std::optional<double> decay_of(std::size_t i) const {
    return may_decay(i) ? options_.weight_decay : std::nullopt;
  }
  bool may_decay(std::size_t i) const {
    const auto& excluded = options_.exclude_from_weight_decay;
    const std::string& variable = trained()[i].name();
    return std::none_of(excluded.begin(), excluded.end(), [&](const std::string& part) {
      return variable.find(part) != std::string::npos;
    });
  }

  const C options_;

 private:
  struct alignas(64) Scale {
    double value = 1;
  };
  static std::size_t this_replica() {
    return static_cast<std::size_t>(std::max(0, current_replica()));
  }
  double decay_now(std::size_t i, double rate) const { return decay_of(i).value_or(0) * rate; }

  // Of the dtype that is computed in.
  Tensor clipped(const Tensor& gradient) const {
    Tensor g = widened(gradient);
    const double scale = scales_[this_replica()].value;
    if (scale != 1) g = g * scale;
    if (const auto norm = internal::clip_of(options_.clipnorm)) {
      g = g * update_rules::norm_clip_scale(std::sqrt(sum_of_squares(g)), *norm);
    }
    if (const auto most = internal::clip_of(options_.clipvalue)) g = g.clamp(-*most, *most);
    return g;
  }

  void make_remote_slots(std::span<const Variable> variables,
                         const std::vector<std::vector<SlotForm>>& forms) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      for (std::size_t s = 0; s < forms[i].size(); ++s) {
        const Variable slot = internal::state_variable(
            variables[i],
            {.name = state_name(variables[i], slot_names_[s]),
             .shape = shape_of(forms[i][s], variables[i].shape()),
             .dtype = variables[i].dtype()},
            {.read = [remote = remote_, i, s] { return remote->slot(i, s); },
             .write = [remote = remote_, i, s](const Tensor& x) { remote->set_slot(i, s, x); }});
        remote_slots_.push_back({slot, i, slot_names_[s]});
      }
    }
  }

  // Undefined: no gradient.
  void push(const std::vector<Tensor>& gradients) {
    const double rate = learning_rate();
    std::vector<WholeUpdater::Part> parts;
    std::vector<std::size_t> asked;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
      parts.push_back({.variable = i,
                       .rule = rule_of(i, rate, step() + 1),
                       .weight_decay = decay_now(i, rate),
                       .by = {.gradient = clipped(gradients[i].to(trained()[i].dtype()))}});
      if (needs_first_slot(parts.back().rule, gradients[i])) asked.push_back(i);
    }
    const std::vector<Tensor> slots = remote_->first_slots(asked);
    for (std::size_t i = 0, next = 0; i < parts.size(); ++i) {
      const bool has_slot = next < asked.size() && asked[next] == parts[i].variable;
      prepare(parts[i].rule, parts[i].by, has_slot ? slots[next++] : Tensor());
    }
    remote_->apply(std::move(parts));
  }

  const std::vector<const char*> slot_names_;
  std::vector<std::vector<Variable>> slots_;  // of each variable; on servers remote_ has them
  std::vector<Scale> scales_;                 // of the gradients of a step, each replica's own
  std::shared_ptr<WholeUpdater> remote_;
  std::vector<SlotVariable> remote_slots_;
};

class LambOptimizer final : public WholeVariableOptimizer<LambOptions> {
 public:
  explicit LambOptimizer(const LambOptions& o)
      : WholeVariableOptimizer(o, "lamb", {"momentum", "velocity"}) {
    const internal::OptionChecks check(name());
    check.below_one("beta_1", o.beta_1);
    check.below_one("beta_2", o.beta_2);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  WholeRule rule_of(std::size_t /*i*/, double rate, int64_t step) const override {
    const auto t = static_cast<double>(step);
    return LambStep{.learning_rate = rate,
                    .beta_1 = options_.beta_1,
                    .beta_2 = options_.beta_2,
                    .epsilon = options_.epsilon,
                    .correction_1 = 1 - std::pow(options_.beta_1, t),
                    .correction_2 = 1 - std::pow(options_.beta_2, t)};
  }
};

class AdafactorOptimizer final : public WholeVariableOptimizer<AdafactorOptions> {
 public:
  explicit AdafactorOptimizer(const AdafactorOptions& o)
      : WholeVariableOptimizer(o, "adafactor", {"rows", "columns", "velocity"}) {
    const internal::OptionChecks check(name());
    check.not_positive("beta_2_decay", o.beta_2_decay);
    check.not_negative("epsilon_1", o.epsilon_1);
    check.not_negative("epsilon_2", o.epsilon_2);
    check.above_zero("clip_threshold", o.clip_threshold);
  }

 private:
  WholeRule rule_of(std::size_t /*i*/, double rate, int64_t step) const override {
    const auto t = static_cast<double>(step);
    const bool relative = options_.relative_step && !current_rate().is_schedule();
    const double limit = 1 / std::sqrt(t);
    return AdafactorStep{.share = std::pow(t, options_.beta_2_decay),
                         .epsilon_1 = options_.epsilon_1,
                         .epsilon_2 = options_.epsilon_2,
                         .rho = std::min(relative ? std::min(rate, limit) : rate, limit),
                         .clip_threshold = options_.clip_threshold};
  }
  bool needs_first_slot(const WholeRule& /*rule*/, const Tensor& gradient) const override {
    return gradient.dim() == 2;
  }
  void prepare(WholeRule& rule, WholeGradient& by, const Tensor& rows) const override {
    if (by.gradient.dim() < 2) return;
    auto& step = std::get<AdafactorStep>(rule);
    const Tensor squares = by.gradient.square() + step.epsilon_1;
    by.row_means = squares.mean(-1);
    by.column_means = squares.mean(-2);
    if (by.gradient.dim() == 2)
      step.rows_mean = mean_of_rows(moved(rows, by.row_means, step.share));
  }
};

class MuonOptimizer final : public WholeVariableOptimizer<MuonOptions> {
 public:
  explicit MuonOptimizer(const MuonOptions& o)
      : WholeVariableOptimizer(o, "muon", {"momentum", "velocity"}) {
    COHORT_CHECK_ARG(o.ns_steps > 0, "[", name(), "] expected ns_steps above 0, got ", o.ns_steps);
    const internal::OptionChecks check(name());
    check.below_one("adam_beta_1", o.adam_beta_1);
    check.below_one("adam_beta_2", o.adam_beta_2);
    check.not_negative("adam_weight_decay", o.adam_weight_decay);
    check.not_negative("epsilon", o.epsilon);
    check.finite("muon_a", o.muon_a);
    check.finite("muon_b", o.muon_b);
    check.finite("muon_c", o.muon_c);
    check.not_negative("adam_lr_ratio", o.adam_lr_ratio);
    check.in_unit("momentum", o.momentum);
    check.not_negative("rms_rate", o.rms_rate);
  }

 private:
  bool goes_by_adam(const Variable& v) const {
    if (v.shape().size() != 2) return true;
    std::string variable = v.name();
    const auto has = [&](const std::string& part) {
      return variable.find(part) != std::string::npos;
    };
    if (std::any_of(options_.exclude_layers.begin(), options_.exclude_layers.end(), has)) {
      return true;
    }
    std::ranges::transform(variable, variable.begin(), [](char c) { return std::tolower(c); });
    return options_.exclude_embeddings && has("embedding");
  }
  std::optional<double> decay_of(std::size_t i) const override {
    if (!may_decay(i)) return std::nullopt;
    return goes_by_adam(trained()[i]) ? options_.adam_weight_decay : options_.weight_decay;
  }
  WholeRule rule_of(std::size_t i, double rate, int64_t step) const override {
    const Variable& v = trained()[i];
    if (goes_by_adam(v)) return adam(rate * options_.adam_lr_ratio, static_cast<double>(step));
    const auto longer = static_cast<double>(std::max(v.shape()[0], v.shape()[1]));
    const double scale = options_.rms_rate ? std::sqrt(longer) * *options_.rms_rate : 1;
    return MuonStep{.momentum = options_.momentum, .rate = rate * scale};
  }
  WholeRule adam(double rate, double t) const {
    return MuonAdamStep{.alpha = rate * std::sqrt(1 - std::pow(options_.adam_beta_2, t)) /
                                 (1 - std::pow(options_.adam_beta_1, t)),
                        .beta_1 = options_.adam_beta_1,
                        .beta_2 = options_.adam_beta_2,
                        .epsilon = options_.epsilon};
  }
  bool needs_first_slot(const WholeRule& rule, const Tensor& /*gradient*/) const override {
    return std::holds_alternative<MuonStep>(rule);
  }
  void prepare(WholeRule& rule, WholeGradient& by, const Tensor& momentum) const override {
    if (!std::holds_alternative<MuonStep>(rule)) return;
    const Tensor m = widened(momentum) * options_.momentum + by.gradient;
    by.update = orthogonal(options_.nesterov ? by.gradient + m * options_.momentum : m);
  }
  // Newton-Schulz steps towards the orthogonal factor.
  Tensor orthogonal(const Tensor& g) const {
    const bool tall = g.size(0) > g.size(1);
    Tensor x = tall ? g.t() : g;
    x = x / (x.norm() + 1e-7);
    for (int i = 0; i < options_.ns_steps; ++i) {
      const Tensor a = x.mm(x.t());
      const Tensor b = a * options_.muon_b + a.mm(a) * options_.muon_c;
      x = x * options_.muon_a + b.mm(x);
    }
    return tall ? x.t() : x;
  }
};

}  // namespace

void internal::add_whole_variable_optimizers(ClassTable& table) {
  table.add_builtin<AdafactorOptimizer>();
  table.add_builtin<LambOptimizer>();
  table.add_builtin<MuonOptimizer>();
}

Lamb::Lamb(LambOptions options) : Optimizer(std::make_shared<LambOptimizer>(options)) {}
Adafactor::Adafactor(AdafactorOptions options)
    : Optimizer(std::make_shared<AdafactorOptimizer>(options)) {}
Muon::Muon(MuonOptions options) : Optimizer(std::make_shared<MuonOptimizer>(options)) {}

}  // namespace cohort::keras
