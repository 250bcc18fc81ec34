// SPDX-License-Identifier: Apache-2.0
//
// Mistakes, and what the compiler has to say about them: every text behind "expect:" must be in its
// output. Never built; run.cmake compiles it.
#include <set>
#include <string>

#include "cohort/cohort.h"

namespace cohort {

void wrong_runs(const Strategy& strategy, const PerReplica<Tensor>& x,
                const PerReplica<Element>& e) {
  // expect: [strategy.run] the function has another number of parameters than run gives it
  strategy.run([](const Tensor&, const Tensor&) {}, x);
  // expect: [strategy.run] the function cannot be called with these arguments
  strategy.run([](const std::string&) {}, x);
  // expect: [strategy.run] a generic lambda does not say what it takes
  strategy.run([](auto, auto) {}, e);
  // expect: [replica_context.merge_call] the function cannot be called with these arguments
  get_replica_context().merge_call([](Strategy&) {}, 1);
  // expect: [strategy.distribute_values_from_function] expected a function of one
  strategy.distribute_values_from_function([](const Tensor&) { return 1; });
  // expect: [nest] not a nest: expected a tensor, number, string
  get_replica_context().all_reduce(ReduceOp::kSum, std::set<int>());
}

void wrong_functions(const Dataset& dataset) {
  // expect: [dataset.map] a generic lambda does not say what it takes
  dataset.map([](auto x) { return x; });
  // expect: [dataset.map] expected a function that returns the new element, got one that returns
  // void
  dataset.map([](const Tensor&) {});
  // expect: [dataset.map] expected a function that returns a Tensor, number, string, Element
  dataset.map([](const Tensor&) { return std::set<int>(); });
  // expect: [dataset] expected a predicate that returns bool or a 0-D tensor
  dataset.filter([](const Tensor&) { return std::string(); });
  // expect: [dataset.as] say what an element has
  dataset.as<>();
}

// A misspelt option is named where its struct is: {.drop_remaindr = true} alone is not.
void misspelt_options(const Dataset& dataset) {
  // expect: drop_remaindr
  dataset.batch(32, BatchOptions{.drop_remaindr = true});
  // expect: BatchOptions
  dataset.batch(32, {.drop_remaindr = true});
  // A name of an option is never taken for a device.
  // expect: {.devces =
  MirroredStrategy({.devces = {"CPU:0", "CPU:1"}});
  // expect: {.thrads =
  MirroredStrategy({.thrads = 3});
}

// (5, 3) is 3 in C++: a warning, of which -Werror=unused-value makes an error.
void sizes_in_round_brackets() {
  // expect: left operand of comma operator has no effect
  keras::Conv2D(32, (5, 3));
}

}  // namespace cohort
