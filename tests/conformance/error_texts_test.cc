// SPDX-License-Identifier: Apache-2.0
//
// What users get wrong, and that the text says it: which operation, what it expected and got, and
// what to do.
#include <gtest/gtest.h>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/testing/deadline.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

constexpr ErrorCode kArgument = ErrorCode::kInvalidArgument;
constexpr ErrorCode kState = ErrorCode::kFailedPrecondition;
constexpr ErrorCode kMissing = ErrorCode::kUnimplemented;

constexpr auto kSum = ReduceOp::kSum;
constexpr auto kMean = ReduceOp::kMean;

struct Misuse {
  const char* name;
  ErrorCode code;
  const char* operation;  // the text begins with it
  const char* expected;   // what was expected, against what it got
  const char* remedy;     // what to do
  void (*play)(const Trial& t);
};

ReplicaContext context() { return get_replica_context(); }
Tensor matrix() { return ones({2, 2}); }
IndexedSlices rows() { return {tensor({1}), tensor({0}, kInt64), {2}}; }

const Misuse kContexts[] = {
    {"ScopeInsideAReplica", kState, "[strategy.scope]", "expected cross-replica context",
     "use merge_call",
     [](const Trial& t) { t.run([&](int) { const auto scope = t.strategy.scope(); }); }},
    {"ScopeOfAnotherStrategy", kState, "[strategy.scope]",
     "which is current, got another strategy (MirroredStrategy#",
     "cannot be mixed; leave the scope first",
     [](const Trial& t) {
       const Strategy other = t.another();
       const auto scope = other.scope();
       const auto mixed = t.strategy.scope();
     }},
    {"ScopeOfTheDefaultStrategyInsideAnother", kState, "[strategy.scope]",
     "expected no other strategy's scope around the default strategy's, got MirroredStrategy",
     "leave that scope first",
     [](const Trial& t) {
       const Strategy usual = get_strategy();
       const auto scope = t.strategy.scope();
       const auto inner = usual.scope();
     }},
    {"SetStrategyInsideAScope", kState, "[set_strategy]",
     "expected to be outside of every scope, got a call inside one",
     "move it out of the scope's block",
     [](const Trial& t) {
       const auto scope = t.strategy.scope();
       set_strategy(t.strategy);
     }},
    {"RunInsideARun", kState, "[strategy.run]", "expected cross-replica context, got a replica",
     "call the function itself",
     [](const Trial& t) { t.run([&](int) { t.strategy.run([] {}); }); }},
    {"RunOfAnotherStrategy", kState, "[strategy.run]", "got another strategy (MirroredStrategy#",
     "leave the scope first",
     [](const Trial& t) {
       const Strategy other = t.another();
       const auto scope = other.scope();
       t.run([](int) {});
     }},
    {"TooManyArguments", kArgument, "[strategy.run]", "expected 2 values, got 3", "got 3",
     [](const Trial& t) {
       t.strategy.run([](const Tensor&) {}, PerReplica<Tensor>({scalar(1), scalar(2), scalar(3)}));
     }},
    {"DifferentNumbersOfMergeCalls", kState, "[strategy.run]",
     "expected all 2 replicas at the merge point that replica 0 has reached, got replica 1 "
     "returned",
     "let every replica take the same way",
     [](const Trial& t) {
       t.run([](int id) {
         if (id == 0) context().merge_call([](Strategy&) {});
       });
     }},
    {"DifferentMergeCalls", kState, "[replica_context.merge_call]",
     "expected the same merge call or collective on every replica",
     "got different ones on replica 0 and replica 1",
     [](const Trial& t) {
       t.run([](int id) {
         if (id == 0) {
           context().merge_call([](Strategy&) {});
         } else {
           context().merge_call([](Strategy&, const PerReplica<int>&) {}, 1);
         }
       });
     }},
    {"ContextWhereThereIsNone", kState, "[replica_context]",
     "expected to be inside strategy.run, got cross-replica context", "check with if (ctx)",
     [](const Trial& t) {
       const auto scope = t.strategy.scope();
       context().replica_id_in_sync_group();
     }},
    {"SeveralValuesReadAsOne", kState, "[per_replica]",
     "expected one value in cross-replica context, got 2 different ones",
     "use strategy.reduce or strategy.gather",
     [](const Trial& t) {
       const Tensor one = t.values({scalar(1), scalar(2)});
     }},
    {"AContextOfAnotherReplica", kState, "[replica_context]", "expected the context of replica",
     "call get_replica_context() inside the function",
     [](const Trial& t) {
       const auto contexts = t.strategy.run([] { return context(); });
       t.run([&](int id) { contexts[static_cast<std::size_t>(1 - id)].all_reduce(kSum, 1); });
     }},
    {"TwoStrategiesAroundAVariable", kState, "[variable]",
     "inside the default strategy's scope: strategies cannot be mixed",
     "leave the scope of get_strategy() first",
     [](const Trial& t) {
       const auto scope = get_strategy().scope();
       t.variable(1.0, {.name = "w"});
     }},
    {"ColocationOutsideTheScope", kState, "[strategy.colocate_vars_with]",
     "expected to be inside the scope of MirroredStrategy#", "enter strategy.scope() first",
     [](const Trial& t) {
       const auto beside = t.strategy.extended().colocate_vars_with(t.variable(1.0));
     }},
    {"ColocationWithAnotherStrategysVariable", kArgument, "[strategy.colocate_vars_with]",
     "expected a variable made under MirroredStrategy#", "got \"w\" (variable ",
     [](const Trial& t) {
       const Variable w(1.0, {.name = "w"});
       const auto scope = t.strategy.scope();
       const auto beside = t.strategy.extended().colocate_vars_with(w);
     }},
    {"ReadVarInsideAReplica", kState, "[strategy.read_var]",
     "expected cross-replica context, got a replica", "use the variable's value()",
     [](const Trial& t) {
       const Variable w = t.variable(1.0);
       t.run([&](int) { t.strategy.extended().read_var(w); });
     }},
    {"UpdateNonSlotInsideAReplica", kState, "[strategy.update_non_slot]",
     "expected cross-replica context, got a replica",
     "inside strategy.run use the replica context's",
     [](const Trial& t) {
       t.run([&](int) { t.strategy.extended().update_non_slot(Device("CPU:0"), [] {}); });
     }},
    {"DevicesOfTheDefaultStrategy", kState, "[strategy.worker_devices]",
     "expected a strategy with devices, got the default one", "enter the scope of another",
     [](const Trial&) { get_strategy().extended().worker_devices(); }},
};

const Misuse kReductions[] = {
    {"ReduceInsideAReplica", kState, "[strategy.reduce]", "expected cross-replica context",
     "use the replica context's all_reduce",
     [](const Trial& t) {
       const auto x = t.values({scalar(1), scalar(2)});
       t.run([&](int) { t.strategy.reduce(kSum, x); });
     }},
    {"GatherInsideAReplica", kState, "[strategy.gather]", "expected cross-replica context",
     "all_gather",
     [](const Trial& t) {
       const auto x = t.values({matrix(), matrix()});
       t.run([&](int) { t.strategy.gather(x, 0); });
     }},
    {"ReduceOfAPlainTensor", kArgument, "[strategy.reduce]", "expected a PerReplica value",
     "cannot be reduced with sum", [](const Trial& t) { t.strategy.reduce(kSum, scalar(1)); }},
    {"ReduceOfTooFewValues", kArgument, "[strategy.reduce]", "expected 2 values", "got 1",
     [](const Trial& t) { t.strategy.reduce(kSum, PerReplica<Tensor>({scalar(1)})); }},
    {"ReduceOfDifferentShapes", kArgument, "[reduce]", "expected shape [2]", "got [3] on replica 1",
     [](const Trial& t) {
       t.strategy.reduce(kSum, t.values({ones({2}), ones({3})}));
     }},
    {"ReduceOverAnAxisThatIsNotThere", kArgument, "[strategy.reduce]",
     "expected an axis of a tensor of rank 1", "got 3",
     [](const Trial& t) {
       t.strategy.reduce(kMean, t.values({ones({2}), ones({2})}), 3);
     }},
    {"MeanOfIntegers", kArgument, "[reduce]", "expected a floating type for mean", "got int64",
     [](const Trial& t) {
       t.strategy.reduce(kMean, t.values({arange(2), arange(2)}));
     }},
    {"ReduceOfTexts", kArgument, "[strategy.reduce]", "expected tensors, indexed slices or numbers",
     "got text",
     [](const Trial& t) {
       t.strategy.reduce(kSum, PerReplica<std::string>({"a", "b"}));
     }},
    {"ReduceOfDifferentStructures", kArgument, "[nest]", "expected values of the same structure",
     "got [number, number] at 0 and [number, number, number] at 1",
     [](const Trial& t) {
       t.strategy.reduce(kSum, PerReplica<std::vector<int>>({{1, 2}, {1, 2, 3}}));
     }},
    {"ReduceByAnUnknownName", kArgument, "[parse_reduce_op]",
     "expected sum, mean, min, max or product", "got \"median\"",
     [](const Trial&) { parse_reduce_op("median"); }},
    {"GatherOfDifferentDimensions", kArgument, "[cross_device_ops.gather]",
     "expected shapes that are equal but for axis 1", "got [2, 1] and [3, 1] on replica 1",
     [](const Trial& t) {
       t.strategy.gather(t.values({ones({2, 1}), ones({3, 1})}), 1);
     }},
    {"GatherOfScalars", kArgument, "[cross_device_ops.gather]",
     "expected tensors with an axis to join, got a scalar", "give it one with unsqueeze(0)",
     [](const Trial& t) {
       t.strategy.gather(t.values({scalar(1), scalar(2)}), 0);
     }},
    {"GatherOfIndexedSlices", kMissing, "[strategy.gather]", "expected dense tensors",
     "got indexed slices",
     [](const Trial& t) {
       t.strategy.gather(PerReplica<IndexedSlices>({rows(), rows()}), 0);
     }},
    {"AllGatherOfIndexedSlices", kMissing, "[replica_context.all_gather]",
     "expected dense tensors, got indexed slices", "make them dense first with to_dense()",
     [](const Trial& t) { t.run([](int) { context().all_gather(rows(), 0); }); }},
    {"AllGatherOfNumbers", kArgument, "[replica_context.all_gather]",
     "expected tensors with an axis to join", "got a number",
     [](const Trial& t) { t.run([](int) { context().all_gather(3, 0); }); }},
    {"NoDestination", kArgument, "[cross_device_ops.reduce]",
     "expected at least 1 destination device", "got none",
     [](const Trial&) {
       ReductionToOneDevice().reduce(kSum, PerReplica<Gradient>({Gradient(scalar(1))}),
                                     std::vector<Device>());
     }},
    {"SmallestOfIndexedSlices", kMissing, "[cross_device_ops.reduce]",
     "expected sum or mean of sparse values, got min", "make them dense first",
     [](const Trial&) {
       ReductionToOneDevice().reduce(ReduceOp::kMin,
                                     PerReplica<Gradient>({Gradient(rows()), Gradient(rows())}),
                                     Device("CPU:0"));
     }},
};

const Misuse kVariables[] = {
    {"NoSynchronization", kArgument, "[variable]",
     "expected synchronization on write or on read for \"w\", got none", "no strategy supports",
     [](const Trial& t) {
       t.variable(1.0, {.name = "w", .synchronization = Synchronization::kNone});
     }},
    {"MeanOfAnIntegerVariable", kArgument, "[variable]", "expected a floating type for \"w\"",
     "got int32",
     [](const Trial& t) {
       t.variable(scalar(1, kInt32), {.name = "w", .aggregation = Aggregation::kMean});
     }},
    {"AFunctionWithoutAShape", kArgument, "[variable]", "expected a shape with a function",
     "got none",
     [](const Trial& t) {
       t.variable([](const Shape& s, DType d, const PartitionInfo&) { return ones(s, d); });
     }},
    {"DifferentNames", kState, "[variable]", "expected every replica to create \"w0\"",
     "got \"w1\"",
     [](const Trial& t) {
       t.run([](int id) { const Variable v(0.0, {.name = str_cat("w", id)}); });
     }},
    {"AssignedShape", kArgument, "[variable.assign]", "expected shape [2] for variable \"w\"",
     "got [3]", [](const Trial& t) { t.variable(ones({2}), {.name = "w"}).assign(ones({3})); }},
    {"AssignedCount", kArgument, "[variable.assign]", "expected 2 values", "got 1",
     [](const Trial& t) { t.variable(1.0).assign(PerReplica<Tensor>({scalar(1)})); }},
    {"ANumberCannotBeSummed", kArgument, "[variable.assign]",
     "expected a value of each replica for variable \"w\"",
     "(aggregation sum), got the same number on each of 2 replicas, which cannot be summed; pass a "
     "tensor made in the replica",
     [](const Trial& t) {
       const Variable w = t.variable(1.0, {.name = "w", .aggregation = Aggregation::kSum});
       t.run([&](int) { w.assign(5.0); });
     }},
    {"ValuePerReplicaInsideAReplica", kState, "[variable.assign]",
     "expected cross-replica context for a value per replica", "got a replica",
     [](const Trial& t) {
       const Variable w = t.variable(1.0);
       const auto x = t.values({scalar(1), scalar(2)});
       t.run([&](int) { w.assign(x); });
     }},
    {"ReadWithoutAggregation", kArgument, "[variable.value]",
     "expected an aggregation to read variable \"w\"", "got none",
     [](const Trial& t) {
       t.variable(1.0, {.name = "w", .synchronization = Synchronization::kOnRead}).value();
     }},
    {"AddingToASum", kArgument, "[variable.assign_add]", "expected a replica: variable \"w\"",
     "is summed on read, so adding to it cross-replica is not defined",
     [](const Trial& t) {
       t.variable(1.0, {.name = "w",
                        .synchronization = Synchronization::kOnRead,
                        .aggregation = Aggregation::kSum})
           .assign_add(scalar(1));
     }},
    {"StorageOutsideAReplica", kArgument, "[variable.local_tensor]",
     "expected to be inside strategy.run for \"w\"", "use value() or components()",
     [](const Trial& t) { t.variable(1.0, {.name = "w"}).local_tensor(); }},
    {"AVariableOfMoreReplicas", kState, "[variable]",
     "got it in a replica of another strategy (3 replicas)",
     "make it under that strategy's scope, or pass its value()",
     [](const Trial& t) {
       const Variable w = t.variable(1.0, {.name = "w"});
       Trial(kMirrored3).run([&](int) { w.value(); });
     }},
    {"ScatterOnRead", kMissing, "[variable.scatter_add]",
     "expected a variable synchronized on write, got \"w\"", "scatter to one of its components()",
     [](const Trial& t) {
       t.variable(zeros({2}), {.name = "w",
                               .synchronization = Synchronization::kOnRead,
                               .aggregation = Aggregation::kSum})
           .scatter_add(rows());
     }},
    {"ScatterMinOfMeans", kMissing, "[variable.scatter_min]",
     "expected aggregation none or only_first_replica of \"w\"",
     "inside run, got mean: minima, maxima and updates of several replicas have no sum; all_reduce "
     "them and scatter cross-replica",
     [](const Trial& t) {
       const Variable w = t.variable(zeros({2}), {.name = "w", .aggregation = Aggregation::kMean});
       t.run([&](int) { w.scatter_min(rows()); });
     }},
    {"ScatterOutOfRange", kArgument, "[variable.scatter_add]",
     "expected indices in [0, 2) of rows of variable \"w\"", "got 5",
     [](const Trial& t) {
       t.variable(zeros({2}), {.name = "w"}).scatter_add({tensor({1}), tensor({5}, kInt64), {2}});
     }},
    {"CentralWithoutAggregation", kArgument, "[variable.assign]",
     "expected an aggregation to write variable \"w\"",
     "inside run, for all replicas share its one copy, got none; make it with .aggregation = kSum, "
     "kMean or kOnlyFirstReplica, or write it cross-replica",
     [](const Trial&) {
       const Trial central(kCentral2);
       const Variable w = central.variable(1.0, {.name = "w"});
       central.run([&](int id) { w.assign(scalar(id)); });
     }},
    {"AnEmptyHandle", kState, "[variable.value]", "expected a Variable, got an empty handle",
     "make it anew", [](const Trial&) { Variable().value(); }},
};

const Misuse kTraining[] = {
    {"LossWithoutASize", kState, "[compute_average_loss]",
     "expected global_batch_size in cross-replica context", "got none",
     [](const Trial& t) {
       const auto scope = t.strategy.scope();
       compute_average_loss(tensor({1}));
     }},
    {"LossOfAScalar", kArgument, "[compute_average_loss]",
     "expected a value per example, got a scalar", "use Reduction::kNone",
     [](const Trial&) { compute_average_loss(scalar(1)); }},
    {"PenaltiesCrossReplica", kState, "[scale_regularization_loss]",
     "expected to be inside strategy.run", "got cross-replica context",
     [](const Trial& t) {
       const auto scope = t.strategy.scope();
       scale_regularization_loss(tensor({1}));
     }},
    {"GradientsCrossReplica", kState, "[optimizer.apply_gradients]",
     "expected to be inside strategy.run", "got cross-replica context of a strategy with 2",
     [](const Trial& t) {
       const Variable w = t.variable(1.0);
       keras::SGD().apply_gradients(Gradients({{Gradient(scalar(1)), w}}));
     }},
    {"NotBatched", kArgument, "[strategy.distribute_dataset]", "expected batches",
     "call batch() first",
     [](const Trial& t) { t.strategy.distribute_dataset(Dataset::range(4)); }},
    {"OnePipelineCannotBeReplicated", kMissing, "[strategy.distribute_dataset]",
     "expected replication mode kPerWorker, got kPerReplica", "cannot be replicated",
     [](const Trial& t) {
       t.strategy.distribute_dataset(Dataset::range(4).batch(2),
                                     {.replication_mode = InputReplicationMode::kPerReplica});
     }},
    {"TheSameDeviceTwice", kArgument, "[MirroredStrategy]", "expected each device once",
     "got CPU:0 twice",
     [](const Trial&) {
       MirroredStrategy({"CPU:0", "CPU:0"});
     }},
    {"GradientsThatAreNotSummedUnderCentralStorage", kMissing, "[optimizer.apply_gradients]",
     "expected gradients that are summed over replicas", "leave it out",
     [](const Trial&) {
       const Trial central(kCentral2);
       const Variable w = central.variable(1.0, {.name = "w"});
       const auto scope = central.strategy.scope();
       const keras::SGD optimizer;
       central.run([&](int) {
         optimizer.apply_gradients(Gradients({{Gradient(scalar(1)), w}}),
                                   {.skip_gradients_aggregation = true});
       });
     }},
    {"NotACpu", kMissing, "[MirroredStrategy]", "expected CPU devices, got TPU:0",
     "not supported in this version", [](const Trial&) { MirroredStrategy({"TPU:0"}); }},
};

void expect_text(const Misuse& misuse) {
  try {
    testing::run_with_deadline(std::chrono::seconds(60), [&] { misuse.play(Trial(kMirrored2)); });
    ADD_FAILURE() << misuse.name << ": nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), misuse.code) << misuse.name << ": " << text;
    EXPECT_EQ(text.rfind(misuse.operation, 0), 0U) << misuse.name << ": " << text;
    EXPECT_NE(text.find(misuse.expected), std::string::npos) << misuse.name << ": " << text;
    EXPECT_NE(text.find(misuse.remedy), std::string::npos) << misuse.name << ": " << text;
  }
}

TEST(ErrorTexts, OfContextsAndRuns) {
  for (const Misuse& misuse : kContexts) expect_text(misuse);
}
TEST(ErrorTexts, OfReductions) {
  for (const Misuse& misuse : kReductions) expect_text(misuse);
}
TEST(ErrorTexts, OfVariables) {
  for (const Misuse& misuse : kVariables) expect_text(misuse);
}
TEST(ErrorTexts, OfTraining) {
  for (const Misuse& misuse : kTraining) expect_text(misuse);
}

}  // namespace
}  // namespace cohort::conformance
