// SPDX-License-Identifier: Apache-2.0
//
// Scopes, replica contexts, run and what it regroups: C01 to C24.
#include <string>

#include "cohort/base/check.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

Word context_here() { return {get_replica_context() ? "context" : "null"}; }
int replica_id() { return get_replica_context().replica_id_in_sync_group(); }

CONFORMANCE(C01_OutsideEverything) {
  return show(has_strategy(), in_cross_replica_context(), replica_id(),
              get_strategy().num_replicas_in_sync());
}

CONFORMANCE(C02_InsideAScope) {
  const auto scope = t.strategy.scope();
  return show(has_strategy(), in_cross_replica_context(), context_here());
}

CONFORMANCE(C03_InsideARun) {
  const auto [cross, ids, counts] = t.strategy.run([] {
    return std::tuple(in_cross_replica_context(), replica_id(),
                      get_replica_context().num_replicas_in_sync());
  });
  return show(cross, ids, counts);
}

CONFORMANCE(C04_TwoStrategiesDoNotMix) {
  const Strategy other = t.another();
  const auto scope = other.scope();
  return show(outcome([&] { const auto mixed = t.strategy.scope(); }),
              outcome([&] { t.strategy.run([] {}); }));
}

CONFORMANCE(C05_ReentersItsOwnScope) {
  std::vector<bool> inside;
  {
    const auto scope = t.strategy.scope();
    {
      const auto again = t.strategy.scope();
      const auto and_again = t.strategy.scope();
      inside.push_back(has_strategy());
    }
    inside.push_back(has_strategy());
  }
  inside.push_back(has_strategy());
  const auto reused = t.strategy.scope();
  inside.push_back(has_strategy());
  return show(inside);
}

CONFORMANCE(C06_NoScopeInsideARun) {
  return show(outcome([&] { t.run([&](int) { const auto scope = t.strategy.scope(); }); }));
}

CONFORMANCE(C08_MergeFunctionsAreCrossReplica) {
  bool has = false, cross = false;
  const auto look = [&](Strategy&) {
    has = has_strategy();
    cross = in_cross_replica_context();
  };
  if (t.kind == kDefault) {
    get_replica_context().merge_call(look);
  } else {
    t.run([&](int) { get_replica_context().merge_call(look); });
  }
  return show(has, cross);
}

CONFORMANCE(C09_ArgumentsAreParameters) {
  const auto same = [](int x) { return x; };
  using Same = decltype(same);
  return show(t.strategy.run(same, 3),
              compiles(cohort::internal::strategy::takes_unwrapped_v<Same, std::string>));
}

CONFORMANCE(C10_ResultsAreRegroupedByMember) {
  struct Out {
    Tensor twice, square;
  };
  const auto out = t.strategy.run(
      [](const Tensor& x) {
        return Out{x * 2, x * x};
      },
      t.values({scalar(1), scalar(2)}));
  return show(out.get(&Out::twice), out.get(&Out::square));
}

CONFORMANCE(C12_LiteralsComeBackUnwrapped) {
  const int seven = t.strategy.run([] { return 7; });
  const std::optional<Tensor> none = t.strategy.run([] { return std::optional<Tensor>(); });
  const std::string text = t.strategy.run([] { return std::string("s"); });
  return show(seven, none, text);
}

CONFORMANCE(C13_NestsAreRegrouped) {
  const auto [id, rest] =
      t.strategy.run([] { return std::tuple(replica_id(), std::tuple(replica_id(), 5)); });
  const auto [again, five] = rest;
  const int bare = five;
  return show(id, again, bare);
}

CONFORMANCE(C14_OneReplicaGivesTheBareValue) {
  const Tensor bare = t.strategy.run([] { return scalar(3); });
  return show(bare);
}

CONFORMANCE(C15_DifferentNumbersOfMergeCalls) {
  return show(outcome([&] {
    t.run([](int id) {
      if (id == 0) get_replica_context().merge_call([](Strategy&) {});
    });
  }));
}

CONFORMANCE(C16_AReplicasErrorIsThrown) {
  return show(outcome([&] {
    t.run([&](int id) {
      if (id == t.replicas - 1) throw InvalidArgument("of the last replica");
    });
  }));
}

CONFORMANCE(C17_ListsOfDifferentLengths) {
  const auto lists = t.strategy.run(
      [] { return std::vector<Tensor>(static_cast<std::size_t>(2 + replica_id()), scalar(1)); });
  return show(lists, outcome([&] { return t.strategy.reduce(ReduceOp::kSum, lists); }));
}

CONFORMANCE(C18_OneObjectCanBeWrapped) {
  const Tensor v = scalar(3);
  const auto wrapped =
      t.strategy.distribute_values_from_function([&](const ValueContext&) { return v; });
  return show(wrapped, wrapped.uniform());
}

CONFORMANCE(C19_LocalResults) {
  const auto parts = t.values({scalar(1), scalar(2)});
  const auto nests = parts.map([](const Tensor& x) {
    return std::map<std::string, Tensor>{{"x", x}};
  });
  return show(t.strategy.local_results(parts), t.strategy.local_results(5),
              t.strategy.local_results(nests));
}

CONFORMANCE(C20_AllReduce) {
  return show(
      t.strategy.run([] { return get_replica_context().all_reduce(ReduceOp::kSum, scalar(1)); }));
}

CONFORMANCE(C23_AllGatherOfUnevenRows) {
  const auto rows = t.values({from_vector<float>({1}, {1, 1}), from_vector<float>({2, 3}, {2, 1})});
  return show(
      t.strategy.run([](const Tensor& x) { return get_replica_context().all_gather(x, 0); }, rows));
}

CONFORMANCE(C24_AllGatherOfIndexedSlices) {
  const IndexedSlices rows{tensor({1}), tensor({0}, kInt64), {2}};
  return show(outcome([&] { t.run([&](int) { get_replica_context().all_gather(rows, 0); }); }));
}

}  // namespace
}  // namespace cohort::conformance
