// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/regularizers.h"

#include "cohort/base/check.h"

namespace cohort::keras {

namespace {

struct L1Regularizer final : RegularizerBase {
  struct Options {
    double l1 = 0.01;
    static void fields(auto& c, auto&& f) { f("l1", c.l1); }
  };
  explicit L1Regularizer(Options o) : options(o) {}
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
  explicit L2Regularizer(Options o) : options(o) {}
  std::string class_name() const override { return "L2"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override { return w.square().sum() * options.l2; }
  const Options options;
};

struct L1L2Regularizer final : RegularizerBase {
  struct Options {
    double l1 = 0;  // Keras's default of the class; the name "l1_l2" means 0.01 of both
    double l2 = 0;
    static void fields(auto& c, auto&& f) {
      f("l1", c.l1);
      f("l2", c.l2);
    }
  };
  explicit L1L2Regularizer(Options o) : options(o) {}
  std::string class_name() const override { return "L1L2"; }
  Config get_config() const override { return config_of(options); }
  Tensor penalty(const Tensor& w) const override {
    return w.abs().sum() * options.l1 + w.square().sum() * options.l2;
  }
  const Options options;
};

/// A function of the program, which no file can hold.
class FunctionRegularizer final : public RegularizerBase {
 public:
  explicit FunctionRegularizer(std::function<Tensor(const Tensor&)> function)
      : function_(std::move(function)) {}
  Tensor penalty(const Tensor& weight) const override { return function_(weight); }
  Config get_config() const override {
    throw Unimplemented(
        "[regularizer.get_config] expected a regularizer with a class, got a function: derive of "
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
    return made;
  }();
  return *table;
}
}  // namespace internal

namespace {

Regularizer regularizer_named(const std::string& name) {
  if (name == "l1" || name == "L1") return L1();
  if (name == "l2" || name == "L2") return L2();
  COHORT_CHECK_ARG(name == "l1_l2" || name == "l1l2" || name == "L1L2",
                   "[regularizer] expected l1, l2 or l1_l2, got ", name);
  return L1L2();
}

}  // namespace

Regularizer::Regularizer(const char* name) : Regularizer(regularizer_named(name)) {}
Regularizer::Regularizer(const std::string& name) : Regularizer(regularizer_named(name)) {}

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
Regularizer L1L2(double l1, double l2) {
  return std::make_shared<const L1L2Regularizer>(L1L2Regularizer::Options{l1, l2});
}

}  // namespace cohort::keras
