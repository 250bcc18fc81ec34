// SPDX-License-Identifier: Apache-2.0
//
// Variables: who writes and reads which component, V01 to V31.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "cohort/base/check.h"
#include "cohort/checkpoint/safetensors.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

constexpr auto kOnRead = Synchronization::kOnRead;

// What the components hold after every replica called `write` with its id.
template <class F>
Word after(const Trial& t, const Variable& v, F write) {
  return outcome([&] {
    t.run([&](int id) { write(v, id); });
    return components(v);
  });
}

CONFORMANCE(V01_WritesWithoutAggregationStayLocal) {
  const Variable v = t.variable(1.0);
  return show(after(t, v, [](const Variable& w, int id) { w.assign(scalar(id)); }));
}

CONFORMANCE(V02_SumOfAssignedValues) {
  const Variable v = t.variable(1.0, {.aggregation = Aggregation::kSum});
  return show(after(t, v, [](const Variable& w, int id) { w.assign(scalar(id + 1)); }));
}

CONFORMANCE(V03_ALiteralCannotBeSummed) {
  const Variable v = t.variable(1.0, {.aggregation = Aggregation::kSum});
  return show(after(t, v, [](const Variable& w, int) { w.assign(5.0); }));
}

CONFORMANCE(V04_MeanOfAssignedValues) {
  const Variable v = t.variable(1.0, {.aggregation = Aggregation::kMean});
  return show(after(t, v, [](const Variable& w, int id) { w.assign(scalar(id)); }));
}

CONFORMANCE(V05_MeanOfAddedValues) {
  const Variable a = t.variable(1.0, {.aggregation = Aggregation::kMean});
  const Variable b = t.variable(1.0, {.aggregation = Aggregation::kMean});
  return show(after(t, a, [](const Variable& w, int id) { w.assign_add(scalar(id)); }),
              after(t, b, [](const Variable& w, int) { w.assign_add(5.0); }));
}

CONFORMANCE(V07_TheFirstReplicasValue) {
  const Variable v = t.variable(1.0, {.aggregation = Aggregation::kOnlyFirstReplica});
  return show(after(t, v, [](const Variable& w, int id) { w.assign(scalar(id)); }));
}

CONFORMANCE(V08_NoMeanOfIntegers) {
  return show(outcome([&] { t.variable(scalar(1, kInt32), {.aggregation = Aggregation::kMean}); }));
}

CONFORMANCE(V10_SummedOnRead) {
  const Variable v =
      t.variable(1.0, {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  const float first = v.value().item<float>();
  v.assign(scalar(6));
  return show(first, v.value(), components(v));
}

CONFORMANCE(V11_NoAddingToASum) {
  const Variable v =
      t.variable(1.0, {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  return show(outcome([&] { return v.assign_add(scalar(1)); }));
}

CONFORMANCE(V12_AveragedOnRead) {
  const Variable v =
      t.variable(1.0, {.synchronization = kOnRead, .aggregation = Aggregation::kMean});
  const auto inside = t.strategy.run([&] {
    v.assign(scalar(get_replica_context().replica_id_in_sync_group()));
    return v.value().clone();
  });
  return show(v.value(), inside, v + 1);
}

CONFORMANCE(V13_NoReadWithoutAggregation) {
  const Variable v = t.variable(1.0, {.synchronization = kOnRead});
  return show(outcome([&] { return v.value(); }));
}

// Values [id, id + 1] at rows [id, id + 1] of a table of three.
IndexedSlices rows_of(int id, DType dtype = kFloat32) {
  const auto first = static_cast<double>(id);
  return {tensor({first, first + 1}, dtype), tensor({first, first + 1}, kInt64), {3}};
}

CONFORMANCE(V15_NoScatterOnRead) {
  const Variable v =
      t.variable(zeros({3}), {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  return show(after(t, v, [](const Variable& w, int id) { w.scatter_add(rows_of(id)); }));
}

CONFORMANCE(V16_SavesWhatAReadGives) {
  const Variable v =
      t.variable(3.5, {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  const std::string path = ::testing::TempDir() + str_cat("conformance_v16_", ::getpid());
  save_tensors(path, {{"v", v.value()}});
  v.assign(scalar(0));
  const Tensor saved = load_tensors(path).tensors.at("v");
  std::remove(path.c_str());
  v.assign(saved);
  const Variable plain(0.0);
  plain.assign(saved);
  return show(saved, components(v), plain.value());
}

CONFORMANCE(V18_IntegersAreSharedOut) {
  const Variable v =
      t.variable(scalar(0, kInt32), {.synchronization = kOnRead, .aggregation = Aggregation::kSum});
  v.assign(scalar(7, kInt32));
  return show(components(v));
}

CONFORMANCE(V19_ScatterSubOfMeans) {
  const Variable v = t.variable(zeros({3}), {.aggregation = Aggregation::kMean});
  return show(after(t, v, [](const Variable& w, int id) { w.scatter_sub(rows_of(id)); }));
}

CONFORMANCE(V20_ScatterAddOfSums) {
  const Variable v = t.variable(zeros({3}, kInt32), {.aggregation = Aggregation::kSum});
  return show(after(t, v, [](const Variable& w, int id) { w.scatter_add(rows_of(id, kInt32)); }));
}

CONFORMANCE(V22_ScatterMinNeedsOneValue) {
  const Variable mean = t.variable(zeros({3}), {.aggregation = Aggregation::kMean});
  const Variable sum = t.variable(zeros({3}), {.aggregation = Aggregation::kSum});
  const auto scatter_min = [](const Variable& w, int id) { w.scatter_min(rows_of(id)); };
  return show(after(t, mean, scatter_min), after(t, sum, scatter_min));
}

CONFORMANCE(V25_NamesOfComponents) {
  std::vector<std::string> names;
  for (const Variable& c : t.variable(1.0, {.name = "w"}).components()) names.push_back(c.name());
  return show(names);
}

CONFORMANCE(V27_WorksOutsideItsScope) {
  const Variable v = t.variable(1.0);
  const float before = v.value().item<float>();
  v.assign(scalar(3));
  return show(before, components(v));
}

CONFORMANCE(V28_ColocatesWithItsOwnVariables) {
  const Variable own = t.variable(1.0);
  const Variable strange = Trial(kMirrored1).variable(1.0);
  const auto scope = t.strategy.scope();
  const auto colocate = [&](const Variable& v) {
    return outcome([&] { const auto beside = t.strategy.extended().colocate_vars_with(v); });
  };
  return show(colocate(own), colocate(strange));
}

CONFORMANCE(V30_DifferentNamesInOneRun) {
  return show(
      outcome([&] { t.run([](int id) { const Variable v(0.0, {.name = str_cat("of_", id)}); }); }));
}

CONFORMANCE(V31_TheStorageItselfInsideARun) {
  const Variable v = t.variable(1.0);
  return show(outcome([&] { v.local_tensor(); }),
              outcome([&] { t.run([&](int) { v.local_tensor(); }); }));
}

}  // namespace
}  // namespace cohort::conformance
