// SPDX-License-Identifier: Apache-2.0
//
// Every rule against Keras's published formula, written out in long double element by element.
#include "cohort/update_rules/rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cohort/base/cpu.h"
#include "cohort/update_rules/update.h"

namespace cohort::update_rules {
namespace {

using Real = long double;

// One element's state in the published formula's own terms.
struct Element {
  Real p = 0;
  Real s[3] = {};
};

struct Case {
  std::string name;
  std::function<Rule(int64_t step)> rule;
  std::function<void(Element&, Real g, int64_t step)> formula;
  double first_slot = 0;
};

constexpr double kLr = 0.01;

Real power(Real base, int64_t n) { return std::pow(base, static_cast<Real>(n)); }

void adam_formula(Element& e, Real g, int64_t t, bool amsgrad) {
  const Real b1 = 0.9, b2 = 0.999, eps = 1e-7;
  const Real alpha = kLr * std::sqrt(1 - power(b2, t)) / (1 - power(b1, t));
  e.s[0] += (g - e.s[0]) * (1 - b1);
  e.s[1] += (g * g - e.s[1]) * (1 - b2);
  Real v = e.s[1];
  if (amsgrad) v = e.s[2] = std::max(e.s[2], v);
  e.p -= e.s[0] * alpha / (std::sqrt(v) + eps);
}

void rmsprop_formula(Element& e, Real g, Real momentum, bool centered) {
  const Real rho = 0.9, eps = 1e-7;
  e.s[0] = rho * e.s[0] + (1 - rho) * g * g;
  Real denominator = e.s[0] + eps;
  if (centered) {
    e.s[1] = rho * e.s[1] + (1 - rho) * g;
    denominator = e.s[0] - e.s[1] * e.s[1] + eps;
  }
  const Real increment = kLr * g / std::sqrt(denominator);
  if (momentum > 0) {
    e.s[2] = momentum * e.s[2] + increment;
    e.p -= e.s[2];
  } else {
    e.p -= increment;
  }
}

void nadam_formula(Element& e, Real g, int64_t t) {
  const Real b1 = 0.9, b2 = 0.999, eps = 1e-7;
  auto u = [&](int64_t i) { return b1 * (1 - 0.5L * power(0.96L, i)); };
  Real product = 1;
  for (int64_t i = 1; i <= t; ++i) product *= u(i);
  e.s[0] += (g - e.s[0]) * (1 - b1);
  e.s[1] += (g * g - e.s[1]) * (1 - b2);
  const Real m_hat = u(t + 1) * e.s[0] / (1 - product * u(t + 1)) + (1 - u(t)) * g / (1 - product);
  const Real v_hat = e.s[1] / (1 - power(b2, t));
  e.p -= m_hat * kLr / (std::sqrt(v_hat) + eps);
}

void ftrl_formula(Element& e, Real g, const FtrlStep& c) {
  const Real lr = c.learning_rate;
  const Real l2 = c.l2 + c.beta / (2 * lr);
  const Real n = e.s[0] + g * g;
  const Real raised = std::pow(n, -static_cast<Real>(c.learning_rate_power));
  const Real before = std::pow(e.s[0], -static_cast<Real>(c.learning_rate_power));
  e.s[1] += g + 2 * c.l2_shrinkage * e.p - (raised - before) / lr * e.p;
  const Real clipped = std::min<Real>(std::max<Real>(e.s[1], -c.l1), c.l1);
  e.p = (clipped - e.s[1]) / (raised / lr + 2 * l2);
  e.s[0] = n;
}

Rule nadam_at(int64_t step) {
  double product = 1;
  NadamStep rule;
  for (int64_t t = 1; t <= step; ++t) rule = nadam_step({.learning_rate = kLr}, t, product);
  return rule;
}

std::vector<Case> adam_cases() {
  return {
      {"adam", [](int64_t t) { return adam_step({.learning_rate = kLr}, t); },
       [](Element& e, Real g, int64_t t) { adam_formula(e, g, t, false); }},
      {"amsgrad", [](int64_t t) { return adam_step({.learning_rate = kLr, .amsgrad = true}, t); },
       [](Element& e, Real g, int64_t t) { adam_formula(e, g, t, true); }},
      {"adamax", [](int64_t t) { return adamax_step({.learning_rate = kLr}, t); },
       [](Element& e, Real g, int64_t t) {
         e.s[0] += (g - e.s[0]) * (1 - 0.9L);
         e.s[1] = std::max<Real>(0.999L * e.s[1], std::fabs(g));
         e.p -= kLr * e.s[0] / ((1 - power(0.9L, t)) * (e.s[1] + 1e-7L));
       }},
      {"nadam", nadam_at, nadam_formula},
      {"lion", [](int64_t) { return LionStep{.learning_rate = kLr}; },
       [](Element& e, Real g, int64_t) {
         const Real mixed = e.s[0] * 0.9L + g * (1 - 0.9L);
         e.p -= kLr * ((mixed > 0) - (mixed < 0));
         e.s[0] = e.s[0] * 0.99L + g * (1 - 0.99L);
       }},
  };
}

std::vector<Case> sgd_cases() {
  auto momentum = [](Element& e, Real g, bool nesterov) {
    e.s[0] = e.s[0] * 0.9L - g * kLr;
    e.p += nesterov ? e.s[0] * 0.9L - g * kLr : e.s[0];
  };
  return {
      {"sgd", [](int64_t) { return SgdStep{kLr}; },
       [](Element& e, Real g, int64_t) { e.p -= g * kLr; }},
      {"momentum",
       [](int64_t) {
         return MomentumStep{kLr, 0.9, false};
       },
       [=](Element& e, Real g, int64_t) { momentum(e, g, false); }},
      {"nesterov",
       [](int64_t) {
         return MomentumStep{kLr, 0.9, true};
       },
       [=](Element& e, Real g, int64_t) { momentum(e, g, true); }},
  };
}

std::vector<Case> accumulator_cases() {
  auto rmsprop = [](double momentum, bool centered) {
    return Case{"rmsprop",
                [=](int64_t) {
                  return RmspropStep{
                      .learning_rate = kLr, .momentum = momentum, .centered = centered};
                },
                [=](Element& e, Real g, int64_t) { rmsprop_formula(e, g, momentum, centered); }};
  };
  auto ftrl = [](FtrlStep step) {
    return Case{"ftrl", [=](int64_t) { return step; },
                [=](Element& e, Real g, int64_t) { ftrl_formula(e, g, step); }, 0.1};
  };
  return {
      rmsprop(0, false),
      rmsprop(0.9, false),
      rmsprop(0, true),
      rmsprop(0.9, true),
      {"adagrad", [](int64_t) { return AdagradStep{.learning_rate = kLr}; },
       [](Element& e, Real g, int64_t) {
         e.s[0] += g * g;
         e.p -= kLr * g / std::sqrt(e.s[0] + 1e-7L);
       },
       0.1},
      {"adadelta", [](int64_t) { return AdadeltaStep{.learning_rate = kLr}; },
       [](Element& e, Real g, int64_t) {
         e.s[0] = 0.95L * e.s[0] + 0.05L * g * g;
         const Real delta = -std::sqrt(e.s[1] + 1e-7L) * g / std::sqrt(e.s[0] + 1e-7L);
         e.s[1] = 0.95L * e.s[1] + 0.05L * delta * delta;
         e.p += kLr * delta;
       }},
      ftrl({.learning_rate = 0.1}),
      ftrl({.learning_rate = 0.1, .l1 = 0.02, .l2 = 0.1, .l2_shrinkage = 0.05, .beta = 0.3}),
      ftrl({.learning_rate = 0.1, .learning_rate_power = -0.7, .l1 = 0.01}),
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (auto group : {sgd_cases(), adam_cases(), accumulator_cases()}) {
    cases.insert(cases.end(), group.begin(), group.end());
  }
  return cases;
}

template <class T>
struct Arenas {
  std::vector<T> param;
  std::vector<T> slots[3];
  std::vector<Element> exact;
};

template <class T>
Arenas<T> make_arenas(std::size_t n, double first_slot, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Arenas<T> a;
  a.exact.resize(n);
  for (Element& e : a.exact) {
    a.param.push_back(static_cast<T>(normal(random)));
    e.p = a.param.back();
    e.s[0] = static_cast<T>(first_slot);
  }
  a.slots[0].assign(n, static_cast<T>(first_slot));
  a.slots[1].assign(n, 0);
  a.slots[2].assign(n, 0);
  return a;
}

// The largest error after some steps of an arena of n elements, relative to 1 + |p|.
template <class T>
double error_of(const Case& c, std::size_t n, double weight_decay, int64_t steps = 10) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  Arenas<T> a = make_arenas<T>(n, c.first_slot, random);
  std::vector<T> gradient(n);
  for (int64_t step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < n; ++i) {
      gradient[i] = static_cast<T>(normal(random));
      a.exact[i].p -= a.exact[i].p * static_cast<Real>(weight_decay);
      c.formula(a.exact[i], gradient[i], step);
    }
    update<T>(c.rule(step), a.param, {a.slots[0], a.slots[1], a.slots[2]}, gradient,
              {.weight_decay = weight_decay});
  }
  Real worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    worst = std::max(worst, std::fabs(a.param[i] - a.exact[i].p) / (1 + std::fabs(a.exact[i].p)));
    if (std::isnan(a.param[i])) return INFINITY;
  }
  return static_cast<double>(worst);
}

class Rules : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto isa = static_cast<cohort::internal::base::Isa>(GetParam());
    if (isa > cohort::internal::base::best_isa())
      GTEST_SKIP() << "this processor lacks the instruction set";
    cohort::internal::base::use_isa(isa);
  }
  void TearDown() override { cohort::internal::base::use_isa(cohort::internal::base::best_isa()); }
};

TEST_P(Rules, FollowKerasInDouble) {
  for (const Case& c : all_cases()) {
    for (std::size_t n : {0, 1, 15, 16, 17, 1023, 1025, 2051}) {
      EXPECT_LT(error_of<double>(c, n, 0), 1e-12) << c.name << " n=" << n;
    }
    EXPECT_LT(error_of<double>(c, 100, 4e-5), 1e-12) << c.name << " with weight decay";
  }
}

TEST_P(Rules, FollowKerasInFloat) {
  for (const Case& c : all_cases()) {
    for (std::size_t n : {0, 1, 15, 16, 17, 1023, 1025, 2051}) {
      // Centered RMSprop divides by the difference of two nearly equal numbers.
      EXPECT_LT(error_of<float>(c, n, 0), c.name == "rmsprop" ? 2e-3 : 5e-6) << c.name << " " << n;
    }
  }
}

TEST_P(Rules, ManyElements) {
  EXPECT_LT(error_of<double>(adam_cases()[0], 1000003, 0, 1), 1e-12);
  EXPECT_LT(error_of<float>(adam_cases()[0], 1000003, 0, 1), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Isa, Rules, ::testing::Values(0, 1, 2));

TEST(Slots, MatchTheRules) {
  auto slots = [](const Rule& rule) {
    std::string text;
    for (std::size_t i = 0; i < kMaxSlots; ++i) text += uses_slot(rule, i) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(slots(SgdStep{}), "000");
  EXPECT_EQ(slots(MomentumStep{}), "100");
  EXPECT_EQ(slots(AdamStep{}), "110");
  EXPECT_EQ(slots(AdamStep{.amsgrad = true}), "111");
  EXPECT_EQ(slots(RmspropStep{}), "100");
  EXPECT_EQ(slots(RmspropStep{.momentum = 0.9}), "101");
  EXPECT_EQ(slots(RmspropStep{.centered = true}), "110");
  EXPECT_EQ(slots(FtrlStep{}), "110");
}

}  // namespace
}  // namespace cohort::update_rules
