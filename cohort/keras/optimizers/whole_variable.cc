// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/whole_variable.h"

#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/classes.h"
#include "cohort/keras/optimizers/internal/option_checks.h"
#include "cohort/keras/optimizers/internal/rule_optimizer.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {
namespace {

// float16 and bfloat16 are computed with in float32 and rounded when they are written.
Tensor widened(const Tensor& x) { return x.element_size() < 4 ? x.to(kFloat32) : x; }

double norm_of(const Tensor& x) { return std::sqrt(x.square().sum(kFloat64).item<double>()); }
double rms_of(const Tensor& x) { return std::sqrt(x.square().mean(kFloat64).item<double>()); }

/// What surrounds the rules of this file: clipping, weight decay, slots.
template <class C>
class WholeVariableOptimizer : public OptimizerBase {
 public:
  using Options = C;
  WholeVariableOptimizer(const C& o, const char* standard_name)
      : OptimizerBase(
            o.learning_rate, o.name.empty() ? standard_name : o.name,
            {o.gradient_accumulation_steps, o.use_ema, o.ema_momentum, o.ema_overwrite_frequency}),
        options_(o) {
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
    Tensor g = widened(gradient.as_tensor().to(variable.dtype()));
    const double scale = scales_[this_replica()].value;
    if (scale != 1) g = g * scale;
    if (const auto norm = internal::clip_of(options_.clipnorm)) {
      g = g * update_rules::norm_clip_scale(norm_of(g), *norm);
    }
    if (const auto most = internal::clip_of(options_.clipvalue)) g = g.clamp(-*most, *most);
    const double rate = learning_rate();
    Tensor w = widened(variable.value());
    if (const auto decay = decay_of(i)) w = w - w * (*decay * rate);
    variable.assign(stepped(i, w, g, rate, step() + 1));
  }

 protected:
  void on_build(std::span<const Variable> variables) final {
    scales_.assign(static_cast<std::size_t>(replicas()), {});
    for (const Variable& v : variables) {
      COHORT_CHECK_ARG(v.impl().store() == nullptr || !v.impl().store()->is_remote(), "[", name(),
                       "] expected variables that every replica has as a whole, got ",
                       cohort::internal::variables::label(v.impl()),
                       " of parameter servers, which keep shards; use Adam or another "
                       "optimizer that goes element by element");
      add_slots(v);
    }
  }
  /// In the order of the variables.
  virtual void add_slots(const Variable& variable) = 0;
  /// The variable after a step, which counts from 1.
  virtual Tensor stepped(std::size_t i, const Tensor& w, const Tensor& g, double rate,
                         int64_t step) = 0;
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

  std::vector<Scale> scales_;  // of the gradients of a step, each replica's own
};

Tensor moved(const Variable& slot, const Tensor& towards, double share) {
  const Tensor now = widened(slot.value());
  const Tensor next = now + (towards - now) * share;
  slot.assign(next);
  return next;
}

class LambOptimizer final : public WholeVariableOptimizer<LambOptions> {
 public:
  explicit LambOptimizer(const LambOptions& o) : WholeVariableOptimizer(o, "lamb") {
    const internal::OptionChecks check(name());
    check.below_one("beta_1", o.beta_1);
    check.below_one("beta_2", o.beta_2);
    check.not_negative("epsilon", o.epsilon);
  }

 private:
  void add_slots(const Variable& v) override {
    momentums_.push_back(add_slot(v, "momentum"));
    velocities_.push_back(add_slot(v, "velocity"));
  }
  Tensor stepped(std::size_t i, const Tensor& w, const Tensor& g, double rate,
                 int64_t step) override {
    const auto t = static_cast<double>(step);
    const Tensor m = moved(momentums_[i], g, 1 - options_.beta_1);
    const Tensor v = moved(velocities_[i], g.square(), 1 - options_.beta_2);
    const Tensor update = m / (1 - std::pow(options_.beta_1, t)) /
                          ((v / (1 - std::pow(options_.beta_2, t))).sqrt() + options_.epsilon);
    const double length = norm_of(w), step_length = norm_of(update);
    const double ratio = length > 0 && step_length > 0 ? length / step_length : 1;
    return w - update * (ratio * rate);
  }

  std::vector<Variable> momentums_, velocities_;
};

class AdafactorOptimizer final : public WholeVariableOptimizer<AdafactorOptions> {
 public:
  explicit AdafactorOptimizer(const AdafactorOptions& o) : WholeVariableOptimizer(o, "adafactor") {
    const internal::OptionChecks check(name());
    check.not_positive("beta_2_decay", o.beta_2_decay);
    check.not_negative("epsilon_1", o.epsilon_1);
    check.not_negative("epsilon_2", o.epsilon_2);
    check.above_zero("clip_threshold", o.clip_threshold);
  }

 private:
  void add_slots(const Variable& v) override {
    const Shape& shape = v.shape();
    Shape row_shape, column_shape;  // of vectors scalars that nothing uses, for Keras's files
    if (shape.size() >= 2) {
      row_shape = column_shape = shape;
      row_shape.pop_back();
      column_shape.erase(column_shape.end() - 2);
    }
    rows_.push_back(add_slot(v, "rows", 0, row_shape));
    columns_.push_back(add_slot(v, "columns", 0, column_shape));
    velocities_.push_back(add_slot(v, "velocity"));
  }
  Tensor stepped(std::size_t i, const Tensor& w, const Tensor& g, double rate,
                 int64_t step) override {
    const auto t = static_cast<double>(step);
    const bool relative = options_.relative_step && !current_rate().is_schedule();
    const double limit = 1 / std::sqrt(t);
    const double rho = std::min(relative ? std::min(rate, limit) : rate, limit);
    const double alpha = std::max(options_.epsilon_2, rms_of(w)) * rho;
    const double share = std::pow(t, options_.beta_2_decay);  // 1 - beta_2 of this step
    const Tensor squares = g.square() + options_.epsilon_1;
    Tensor v;
    if (w.dim() < 2) {
      v = moved(velocities_[i], squares, share);
    } else {
      const Tensor r = moved(rows_[i], squares.mean(-1), share);
      const Tensor c = moved(columns_[i], squares.mean(-2), share);
      v = (r / r.mean(-1, /*keepdim=*/true)).unsqueeze(-1) * c.unsqueeze(-2);
      velocities_[i].assign(v);
    }
    const Tensor update = g / v.sqrt();
    return w - update * (alpha / std::max(1.0, rms_of(update) / options_.clip_threshold));
  }

  std::vector<Variable> rows_, columns_, velocities_;
};

class MuonOptimizer final : public WholeVariableOptimizer<MuonOptions> {
 public:
  explicit MuonOptimizer(const MuonOptions& o) : WholeVariableOptimizer(o, "muon") {
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
  void add_slots(const Variable& v) override {
    momentums_.push_back(add_slot(v, "momentum"));
    velocities_.push_back(goes_by_adam(v) ? add_slot(v, "velocity") : Variable());
  }
  std::optional<double> decay_of(std::size_t i) const override {
    if (!may_decay(i)) return std::nullopt;
    return velocities_[i] ? options_.adam_weight_decay : options_.weight_decay;
  }
  Tensor stepped(std::size_t i, const Tensor& w, const Tensor& g, double rate,
                 int64_t step) override {
    if (velocities_[i]) return adam(i, w, g, rate * options_.adam_lr_ratio, step);
    const double momentum = options_.momentum;
    const Tensor m = widened(momentums_[i].value()) * momentum + g;
    momentums_[i].assign(m);
    const Tensor update = orthogonal(options_.nesterov ? g + m * momentum : m);
    const auto longer = static_cast<double>(std::max(w.size(0), w.size(1)));
    return w - update * (rate * (options_.rms_rate ? std::sqrt(longer) * *options_.rms_rate : 1));
  }
  Tensor adam(std::size_t i, const Tensor& w, const Tensor& g, double rate, int64_t step) {
    const auto t = static_cast<double>(step);
    const double alpha = rate * std::sqrt(1 - std::pow(options_.adam_beta_2, t)) /
                         (1 - std::pow(options_.adam_beta_1, t));
    const Tensor m = moved(momentums_[i], g, 1 - options_.adam_beta_1);
    const Tensor v = moved(velocities_[i], g.square(), 1 - options_.adam_beta_2);
    return w - m * alpha / (v.sqrt() + options_.epsilon);
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

  std::vector<Variable> momentums_, velocities_;  // an empty velocity: not by Adam
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
