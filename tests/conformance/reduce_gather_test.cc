// SPDX-License-Identifier: Apache-2.0
//
// Reductions, gathering and values made per replica: C25 to C40.
#include "cohort/base/check.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

PerReplica<Tensor> two_rows(const Trial& t) {
  return t.values({tensor({0, 1, 2, 3}), tensor({4, 5, 6, 7})});
}

CONFORMANCE(C25_SumsElementByElement) {
  return show(t.strategy.reduce(ReduceOp::kSum, two_rows(t)));
}

CONFORMANCE(C26_SumAndMeanOverAnAxis) {
  return show(t.strategy.reduce(ReduceOp::kSum, two_rows(t), 0),
              t.strategy.reduce(ReduceOp::kMean, two_rows(t), 0));
}

CONFORMANCE(C27_MeanCountsTheElementsThatAreThere) {
  const auto uneven = t.values({tensor({0, 1, 2, 3}), tensor({4, 5})});
  return show(t.strategy.reduce(ReduceOp::kMean, uneven, 0));
}

CONFORMANCE(C28_MeanIsNotTheMeanOfMeans) {
  const auto uneven = t.values({tensor({5, 6}), tensor({7})});
  const auto means = uneven.map([](const Tensor& x) { return x.mean(); });
  return show(t.strategy.reduce(ReduceOp::kMean, uneven, 0),
              t.strategy.reduce(ReduceOp::kMean, means));
}

CONFORMANCE(C30_MeanOverTheLastAxis) {
  const Tensor x = from_vector<float>({1, 2, 3, 4}, {2, 2});
  return show(t.strategy.reduce(ReduceOp::kMean, t.values({x, x, x, x}), -1));
}

CONFORMANCE(C32_AnAxisThatIsNotThere) {
  return show(outcome([&] { return t.strategy.reduce(ReduceOp::kMean, two_rows(t), 3); }));
}

CONFORMANCE(C33_PlainValues) {
  return show(outcome([&] { return t.strategy.reduce(ReduceOp::kSum, scalar(1)); }),
              t.strategy.reduce(ReduceOp::kMean, scalar(1)),
              t.strategy.reduce(ReduceOp::kSum, scalar(0)));
}

template <class Op>
constexpr bool reduces_with = requires(const Strategy& strategy, const PerReplica<Tensor>& value,
                                       Op op) {
  strategy.reduce(op, value, 0);
};

CONFORMANCE(C35_NamesOfOperations) {
  static_assert(reduces_with<ReduceOp>);
  return show(outcome([] { parse_reduce_op("median"); }),
              Word{reduce_op_name(parse_reduce_op("max"))}, compiles(reduces_with<int>));
}

CONFORMANCE(C37_GathersAlongAnAxis) {
  const auto parts =
      t.values({from_vector<float>({1, 2}, {2, 1}), from_vector<float>({3, 4, 5, 6}, {2, 2})});
  return show(t.strategy.gather(parts, 1));
}

CONFORMANCE(C38_WhatCannotBeGathered) {
  const auto parts = t.values({ones({2, 1}), ones({3, 2})});
  return show(outcome([&] { return t.strategy.gather(parts, 1); }),
              outcome([&] { t.run([&](int) { t.strategy.gather(parts, 0); }); }));
}

CONFORMANCE(C39_ValuesFromAFunction) {
  const auto [values, counts] =
      t.strategy.distribute_values_from_function([](const ValueContext& c) {
        return std::tuple(c.replica_id_in_sync_group * 10, c.num_replicas_in_sync);
      });
  return show(values, counts);
}

CONFORMANCE(C40_ConstantsFromAFunctionStayWrapped) {
  return show(t.strategy.distribute_values_from_function([](const ValueContext&) { return 3.0; }));
}

}  // namespace
}  // namespace cohort::conformance
