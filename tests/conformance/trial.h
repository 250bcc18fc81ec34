// SPDX-License-Identifier: Apache-2.0
//
// One case under one strategy. A test returns what it saw and never learns what was expected:
//
//   CONFORMANCE(C27_MeanCountsTheElementsThatAreThere) {
//     return show(t.strategy.reduce(ReduceOp::kMean, t.values({tensor({0, 1}), tensor({2})}), 0));
//   }
//
// runs under every strategy for which the table has an expectation of C27, as
// Conformance.C27_MeanCountsTheElementsThatAreThere/Mirrored2 and so on.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "tests/conformance/case.h"
#include "tests/conformance/show.h"

namespace cohort::conformance {

struct Trial {
  Strategies kind;
  Strategy strategy;
  int replicas;

  explicit Trial(Strategies one);

  /// Another strategy object: of the same kind, or a mirrored one for the default strategy.
  Strategy another() const;
  /// The first of them, one for each replica.
  PerReplica<Tensor> values(std::vector<Tensor> of) const;
  /// Made in the strategy's scope.
  Variable variable(InitialValue initial, VariableOptions options = {}) const;
  /// Runs body(replica id) on every replica.
  void run(const std::function<void(int)>& body) const;
};

/// A function that plays a case.
struct Body {
  std::string_view name;  ///< "C27_MeanOf..."
  std::string_view id;    ///< "C27"
  std::string (*play)(const Trial& t);
  const char* file;
  int line;
};

/// All that were declared, in no order that matters.
std::vector<Body>& all_bodies();
bool add_body(const char* name, std::string (*play)(const Trial&), const char* file, int line);

#define CONFORMANCE(name)                                                             \
  static std::string name(const Trial& t);                                            \
  [[maybe_unused]] static const bool name##_added =                                   \
      ::cohort::conformance::add_body(#name, &name, __FILE__, __LINE__); /* NOLINT */ \
  static std::string name([[maybe_unused]] const Trial& t)

}  // namespace cohort::conformance
