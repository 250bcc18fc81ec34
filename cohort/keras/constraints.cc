// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/constraints.h"

#include "cohort/base/check.h"

namespace cohort::keras {

namespace {

constexpr double kNormEpsilon = 1e-7;  // Keras's epsilon()

Tensor norms(const Tensor& w, int64_t axis) {
  COHORT_CHECK_ARG(axis >= -w.dim() && axis < w.dim(), "[constraint] expected an axis of shape ",
                   bracketed(w.sizes()), ", got ", axis);
  return w.square().sum(axis, /*keepdim=*/true).sqrt();
}

struct NonNegConstraint final : ConstraintBase {
  struct Options {
    static void fields(auto&, auto&&) {}
  };
  explicit NonNegConstraint(Options) {}
  std::string class_name() const override { return "NonNeg"; }
  Config get_config() const override { return Config::object(); }
  Tensor project(const Tensor& w) const override { return w.clamp_min(0); }
};

struct MaxNormConstraint final : ConstraintBase {
  struct Options {
    double max_value = 2;
    int64_t axis = 0;
    static void fields(auto& c, auto&& f) {
      f("max_value", c.max_value);
      f("axis", c.axis);
    }
  };
  explicit MaxNormConstraint(Options o) : options(o) {}
  std::string class_name() const override { return "MaxNorm"; }
  Config get_config() const override { return config_of(options); }
  Tensor project(const Tensor& w) const override {
    const Tensor size = norms(w, options.axis);
    return w * (size.clamp(0, options.max_value) / (size + kNormEpsilon));
  }
  const Options options;
};

struct UnitNormConstraint final : ConstraintBase {
  struct Options {
    int64_t axis = 0;
    static void fields(auto& c, auto&& f) { f("axis", c.axis); }
  };
  explicit UnitNormConstraint(Options o) : options(o) {}
  std::string class_name() const override { return "UnitNorm"; }
  Config get_config() const override { return config_of(options); }
  Tensor project(const Tensor& w) const override {
    return w / (norms(w, options.axis) + kNormEpsilon);
  }
  const Options options;
};

struct MinMaxNormConstraint final : ConstraintBase {
  using Options = MinMaxNormOptions;
  explicit MinMaxNormConstraint(Options o) : options(o) {}
  std::string class_name() const override { return "MinMaxNorm"; }
  Config get_config() const override { return config_of(options); }
  Tensor project(const Tensor& w) const override {
    const Tensor size = norms(w, options.axis);
    const Tensor wanted =
        size.clamp(options.min_value, options.max_value) * options.rate + size * (1 - options.rate);
    return w * (wanted / (size + kNormEpsilon));
  }
  const Options options;
};

/// A function of the program, which no file can hold.
class FunctionConstraint final : public ConstraintBase {
 public:
  explicit FunctionConstraint(std::function<Tensor(const Tensor&)> function)
      : function_(std::move(function)) {}
  Tensor project(const Tensor& weight) const override { return function_(weight); }
  Config get_config() const override {
    throw Unimplemented(
        "[constraint.get_config] expected a constraint with a class, got a function: derive from "
        "keras::ConstraintBase and register the class");
  }

 private:
  const std::function<Tensor(const Tensor&)> function_;
};

}  // namespace

namespace internal {
template <>
ClassTable& class_table<ConstraintBase>() {
  static auto* table = [] {
    auto* made = new ClassTable("Constraint", "keras.constraints");
    made->add_builtin<NonNegConstraint>();
    made->add_builtin<MaxNormConstraint>();
    made->add_builtin<UnitNormConstraint>();
    made->add_builtin<MinMaxNormConstraint>();
    return made;
  }();
  return *table;
}
}  // namespace internal

namespace {

Constraint constraint_named(const std::string& name) {
  if (name == "non_neg" || name == "NonNeg") return NonNeg();
  if (name == "max_norm" || name == "MaxNorm") return MaxNorm();
  if (name == "unit_norm" || name == "UnitNorm") return UnitNorm();
  COHORT_CHECK_ARG(name == "min_max_norm" || name == "MinMaxNorm",
                   "[constraint] expected non_neg, max_norm, unit_norm or min_max_norm, got ",
                   name);
  return MinMaxNorm();
}

}  // namespace

Constraint::Constraint(const char* name) : Constraint(constraint_named(name)) {}
Constraint::Constraint(const std::string& name) : Constraint(constraint_named(name)) {}

Tensor Constraint::operator()(const Tensor& weight) const {
  COHORT_CHECK_STATE(object_ != nullptr,
                     "[constraint] expected a constraint, got none: test it as a bool first");
  return object_->project(weight);
}

Constraint Constraint::of_function(std::function<Tensor(const Tensor&)> project) {
  if (project == nullptr) return {};
  return std::make_shared<const FunctionConstraint>(std::move(project));
}

std::function<Tensor(const Tensor&)> Constraint::function() const {
  if (object_ == nullptr) return nullptr;
  return [object = object_](const Tensor& weight) { return object->project(weight); };
}

Constraint Constraint::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  return made_of(config);
}

Constraint NonNeg() {
  return std::make_shared<const NonNegConstraint>(NonNegConstraint::Options());
}
Constraint MaxNorm(double max_value, int64_t axis) {
  return std::make_shared<const MaxNormConstraint>(MaxNormConstraint::Options{max_value, axis});
}
Constraint UnitNorm(int64_t axis) {
  return std::make_shared<const UnitNormConstraint>(UnitNormConstraint::Options{axis});
}
Constraint MinMaxNorm(MinMaxNormOptions options) {
  return std::make_shared<const MinMaxNormConstraint>(options);
}

}  // namespace cohort::keras
