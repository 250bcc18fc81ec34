// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/regularizers.h"

#include <array>
#include <cmath>

#include "cohort/base/check.h"

namespace cohort::keras {

namespace {

/// As Keras: what would reward large weights, or is no number, is a mistake.
void check_factor(const char* name, double factor) {
  COHORT_CHECK_ARG(std::isfinite(factor) && factor >= 0, "[", name,
                   "] expected a finite factor of 0 or more, got ", factor);
}

struct L1Regularizer final : RegularizerBase {
  struct Options {
    double l1 = 0.01;
    static void fields(auto& c, auto&& f) { f("l1", c.l1); }
  };
  explicit L1Regularizer(Options o) : options(o) { check_factor("l1", o.l1); }
  std::string class_name() const override { return "L1"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override { return w.abs().sum() * options.l1; }
  const Options options;
};

struct L2Regularizer final : RegularizerBase {
  struct Options {
    double l2 = 0.01;
    static void fields(auto& c, auto&& f) { f("l2", c.l2); }
  };
  explicit L2Regularizer(Options o) : options(o) { check_factor("l2", o.l2); }
  std::string class_name() const override { return "L2"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override { return w.square().sum() * options.l2; }
  const Options options;
};

struct L1L2Regularizer final : RegularizerBase {
  struct Options {
    double l1 = 0;
    double l2 = 0;
    static void fields(auto& c, auto&& f) {
      f("l1", c.l1);
      f("l2", c.l2);
    }
  };
  explicit L1L2Regularizer(Options o) : options(o) {
    check_factor("l1_l2", o.l1);
    check_factor("l1_l2", o.l2);
  }
  std::string class_name() const override { return "L1L2"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override {
    return w.abs().sum() * options.l1 + w.square().sum() * options.l2;
  }
  const Options options;
};

struct OrthogonalRegularizerObject final : RegularizerBase {
  struct Options {
    double factor = 0.01;
    OrthogonalMode mode = OrthogonalMode::kRows;
    static void fields(auto& c, auto&& f) {
      f("factor", c.factor);
      f("mode", c.mode);
    }
  };
  explicit OrthogonalRegularizerObject(Options o) : options(o) {
    check_factor("orthogonal_regularizer", o.factor);
  }
  std::string class_name() const override { return "OrthogonalRegularizer"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override {
    COHORT_CHECK_ARG(w.dim() == 2,
                     "[orthogonal_regularizer] expected a weight of 2 axes, got shape ",
                     bracketed(w.sizes()));
    const Tensor rows = options.mode == OrthogonalMode::kRows ? w : w.t();
    const Tensor unit = rows * rows.square().sum(1, /*keepdim=*/true).clamp_min(1e-14).rsqrt();
    const auto size = static_cast<double>(rows.size(0));
    const double pairs = size * (size - 1) / 2;
    const Tensor sums = unit.mm(unit.t()).triu(1).abs().sum();  // each pair once
    return sums * (pairs == 0 ? 0 : options.factor / pairs);
  }
  const Options options;
};

constexpr std::array<std::pair<const char*, OrthogonalMode>, 2> kOrthogonalModes = {
    {{"rows", OrthogonalMode::kRows}, {"columns", OrthogonalMode::kColumns}}};

/// A function of the program, which no file can hold.
class FunctionRegularizer final : public RegularizerBase {
 public:
  explicit FunctionRegularizer(std::function<Tensor(const Tensor&)> function)
      : function_(std::move(function)) {}
  Tensor penalty(const Tensor& weight) const override { return function_(weight); }
  Config get_config() const override {
    throw Unimplemented(
        "[regularizer.get_config] expected a regularizer with a class, got a function: derive from "
        "keras::RegularizerBase and register the class");
  }

 private:
  const std::function<Tensor(const Tensor&)> function_;
};

}  // namespace

namespace internal {
template <>
ClassTable& class_table<RegularizerBase>() {
  static auto* table = [] {
    auto* made = new ClassTable("Regularizer", "keras.regularizers");
    made->add_builtin<L1Regularizer>();
    made->add_builtin<L2Regularizer>();
    made->add_builtin<L1L2Regularizer>();
    made->add_builtin<OrthogonalRegularizerObject>("OrthogonalRegularizer");
    return made;
  }();
  return *table;
}
}  // namespace internal

namespace {

Regularizer regularizer_named(const std::string& name) {
  if (name == "l1" || name == "L1") return L1();
  if (name == "l2" || name == "L2") return L2();
  if (name == "l1l2" || name == "L1L2") return L1L2();
  if (name == "orthogonal_regularizer" || name == "OrthogonalRegularizer") {
    return OrthogonalRegularizer();
  }
  COHORT_CHECK_ARG(name == "l1_l2",
                   "[regularizer] expected l1, l2, l1_l2, l1l2 or orthogonal_regularizer, got ",
                   name);
  return L1L2(0.01, 0.01);
}

}  // namespace

Regularizer::Regularizer(const char* name) : Regularizer(regularizer_named(name)) {}
Regularizer::Regularizer(const std::string& name) : Regularizer(regularizer_named(name)) {}

Tensor Regularizer::operator()(const Tensor& weight) const {
  COHORT_CHECK_STATE(object_ != nullptr,
                     "[regularizer] expected a regulariser, got none: test it as a bool first");
  return object_->penalty(weight);
}

Regularizer Regularizer::of_function(std::function<Tensor(const Tensor&)> penalty) {
  return std::make_shared<const FunctionRegularizer>(std::move(penalty));
}

Regularizer Regularizer::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  return made_of(config);
}

Regularizer L1(double factor) {
  return std::make_shared<const L1Regularizer>(L1Regularizer::Options{factor});
}
Regularizer L2(double factor) {
  return std::make_shared<const L2Regularizer>(L2Regularizer::Options{factor});
}
Regularizer OrthogonalRegularizer(double factor, OrthogonalMode mode) {
  return std::make_shared<const OrthogonalRegularizerObject>(
      OrthogonalRegularizerObject::Options{factor, mode});
}
Config ConfigValue<OrthogonalMode>::write(OrthogonalMode value) {
  return internal::name_of_value(kOrthogonalModes, value);
}
OrthogonalMode ConfigValue<OrthogonalMode>::read(const Config& config) {
  return internal::value_of_name(kOrthogonalModes, config);
}
Regularizer L1L2(double l1, double l2) {
  return std::make_shared<const L1L2Regularizer>(L1L2Regularizer::Options{l1, l2});
}

}  // namespace cohort::keras
