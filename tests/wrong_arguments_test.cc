// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are wrong where a public function takes one: InvalidArgument of ours that names the
// function, without LibTorch's stack trace.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "cohort/cohort.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

struct Case {
  std::string tag;  ///< How the error's text begins.
  std::function<void()> call;
};

void expect_ours(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.tag);
    try {
      one.call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.rfind("[" + one.tag, 0), 0U) << text;
      EXPECT_EQ(text.find("Exception raised from"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not InvalidArgument: " << error.what();
    }
  }
}

const Tensor kNone;

TEST(WrongArguments, UndefinedTensors) {
  const MirroredStrategy two({"CPU:0", "CPU:1"});
  const auto strategy = std::make_shared<MirroredStrategy>(two);
  const PerReplica<Tensor> half({scalar(1), Tensor()});
  const auto v = std::make_shared<Variable>(1.0);
  expect_ours({
      {"dataset.from_tensor_slices", [] { Dataset::from_tensor_slices(Tensor()); }},
      {"dataset.from_tensor_slices",
       [] {
         Dataset::from_tensor_slices({ones({2}), Tensor()});
       }},
      {"dataset.from_tensors", [] { Dataset::from_tensors(Tensor()); }},
      {"strategy.reduce", [=] { strategy->reduce("mean", kNone); }},
      {"strategy.reduce", [=] { strategy->reduce("sum", half); }},
      {"strategy.reduce", [=] { strategy->reduce("sum", half, 0); }},
      {"", [=] { strategy->gather(half, 0); }},
      {"strategy.reduce_to", [=] { strategy->extended().reduce_to("mean", kNone, "CPU:0"); }},
      {"strategy.reduce_to", [=] { strategy->extended().reduce_to("sum", half, "CPU:0"); }},
      {"strategy.broadcast_to", [=] { strategy->extended().broadcast_to(kNone); }},
      {"strategy.broadcast_to", [] { get_strategy().extended().broadcast_to(kNone); }},
      {"", [=] { strategy->run([] { get_replica_context().all_reduce("sum", kNone); }); }},
      {"", [=] { strategy->run([] { get_replica_context().all_gather(kNone, 0); }); }},
      {"compute_average_loss", [] { compute_average_loss(Tensor(), {.global_batch_size = 1}); }},
      {"scale_regularization_loss", [] { scale_regularization_loss(Tensor()); }},
      {"variable", [] { Variable none{Tensor()}; }},
      {"variable.assign", [=] { v->assign(kNone); }},
      {"variable.assign_add", [=] { v->assign_add(kNone); }},
      {"variable.sparse_read", [=] { v->sparse_read(kNone); }},
      {"gradient_tape.watch",
       [] {
         Tensor x;
         GradientTape().watch(x);
       }},
      {"gradient_tape.gradient", [=] { GradientTape().gradient(kNone, *v); }},
      {"gradient_tape.gradient", [=] { GradientTape().gradient(*v * 2, kNone); }},
      {"shape_of", [] { shape_of(Tensor()); }},
      {"concat",
       [] {
         concat(std::vector<Tensor>{ones({1}), Tensor()});
       }},
      {"to_vector", [] { to_vector<float>(Tensor()); }},
      {"", [] { IndexedSlices().to_dense(); }},
      {"write_npy", [] { write_npy("none.npy", Tensor()); }},
      {"loss", [] { keras::MeanSquaredError()(Tensor(), ones({1})); }},
      {"loss", [] { keras::Loss("mse")(ones({1}), Tensor()); }},
      {"metric.update_state", [] { keras::Mean().update_state(Tensor()); }},
      {"metric.update_state", [] { keras::Accuracy().update_state(Tensor(), ones({1})); }},
      {"", [] { keras::Dense(2)(Tensor()); }},
  });
}

// Functions that hold none are refused where they are given, not where they would be called.

TEST(EmptyFunctions, OfDatasets) {
  const Dataset data = Dataset::range(3);
  using Map = std::function<int64_t(int64_t)>;
  using Flat = std::function<Dataset(int64_t)>;
  using Reduce = std::function<Dataset(int64_t, const Dataset&)>;
  constexpr int64_t (*kNull)(int64_t) = nullptr;
  const Map same = [](int64_t x) { return x; };
  const Reduce window = [](int64_t, const Dataset& w) { return w; };
  expect_ours({
      {"dataset.map", [=] { data.map(Map()); }},
      {"dataset.map", [=] { data.map(kNull); }},
      {"dataset.filter", [=] { data.filter(std::function<bool(int64_t)>()); }},
      {"dataset.take_while", [=] { data.take_while(std::function<bool(int64_t)>()); }},
      {"dataset.flat_map", [=] { data.flat_map(Flat()); }},
      {"dataset.interleave", [=] { data.interleave(Flat()); }},
      {"dataset.bucket_by_sequence_length",
       [=] {
         data.bucket_by_sequence_length(kNull,
                                        {.bucket_boundaries = {2}, .bucket_batch_sizes = {1, 1}});
       }},
      {"dataset.group_by_window", [=] { data.group_by_window(kNull, window, 2); }},
      {"dataset.group_by_window", [=] { data.group_by_window(same, Reduce(), 2); }},
      {"dataset.group_by_window", [=] { data.group_by_window(same, window, Map()); }},
      {"dataset.rejection_resample",
       [=] {
         data.rejection_resample(kNull, {0.5, 0.5});
       }},
      {"dataset.scan", [=] { data.scan(scalar(0), nullptr); }},
      {"dataset.reduce",
       [=] { data.reduce(int64_t{0}, std::function<int64_t(int64_t, int64_t)>()); }},
      {"dataset.apply", [=] { data.apply(std::function<Dataset(const Dataset&)>()); }},
      {"dataset.from_generator",
       [] { Dataset::from_generator(std::function<std::optional<int64_t>()>()); }},
  });
}

TEST(EmptyFunctions, OfStrategies) {
  const auto strategy = std::make_shared<MirroredStrategy>(std::vector<Device>{"CPU:0", "CPU:1"});
  const auto scope = strategy->scope();
  const auto v = std::make_shared<Variable>(1.0);
  expect_ours({
      {"strategy.run", [=] { strategy->run(std::function<void()>()); }},
      {"strategy.distribute_values_from_function",
       [=] {
         strategy->distribute_values_from_function(std::function<int(const ValueContext&)>());
       }},
      {"strategy.distribute_datasets_from_function",
       [=] { strategy->distribute_datasets_from_function(nullptr); }},
      {"replica_context.merge_call",
       [=] {
         strategy->run([] { get_replica_context().merge_call(std::function<void(Strategy&)>()); });
       }},
      {"strategy.update",
       [=] { strategy->extended().update(*v, std::function<void(const Variable&)>()); }},
      {"strategy.update_non_slot",
       [=] { strategy->extended().update_non_slot("CPU:1", std::function<void()>()); }},
      {"initial_value",
       [] { Variable(std::function<Tensor(const Shape&, DType, const PartitionInfo&)>()); }},
  });
}

TEST(EmptyFunctions, OfLayersAndTraining) {
  using Unary = std::function<Tensor(const Tensor&)>;
  using Make = std::function<Tensor(const Shape&, DType)>;
  expect_ours({
      {"activation", [] { keras::Dense(2, {.activation = Unary()}); }},
      {"initializer", [] { keras::Dense(2, {.kernel_initializer = Make()}); }},
      {"regularizer", [] { keras::Dense(2, {.kernel_regularizer = Unary()}); }},
      {"learning_rate", [] { keras::SGD({.learning_rate = std::function<double(int64_t)>()}); }},
      {"loss", [] { keras::Loss(std::function<Tensor(const Tensor&, const Tensor&)>()); }},
  });
}

TEST(WrongArguments, ShapesAndNumbersThatDoNotFit) {
  expect_ours({
      {"concat",
       [] {
         concat(std::vector<Tensor>{ones({1, 2}), ones({1, 3})});
       }},
      {"concat",
       [] {
         concat(std::vector<Tensor>{ones({1}), ones({1})}, 3);
       }},
      {"full",
       [] {
         zeros({2, -1});
       }},
      {"empty", [] { empty({kUnknownDim}); }},
      {"arange", [] { arange(-1); }},
      {"compute_average_loss",
       [] {
         compute_average_loss(ones({3}), {.sample_weight = ones({2}), .global_batch_size = 3});
       }},
      {"cosine_similarity",
       [] {
         keras::CosineSimilarity({.axis = 5})(ones({2, 2}), ones({2, 2}));
       }},
      {"recurrent", [] { keras::LSTM(0); }},
      {"l2", [] { keras::L2(-1); }},
      {"l1", [] { keras::L1(std::nan("")); }},
      {"l1_l2", [] { keras::L1L2(0, -0.1); }},
      {"orthogonal_regularizer", [] { keras::OrthogonalRegularizer(-1); }},
      {"variable.assign",
       [] {
         Variable v(zeros({2}, kInt32));
         v.assign(full({2}, 1e10, kInt64));
       }},
      {"variable.assign_add",
       [] {
         Variable v(zeros({2}, kUint8));
         v.assign_add(full({2}, 300, kInt64));
       }},
  });
}

TEST(WrongArguments, ArraysWithoutRows) {
  keras::Sequential model({keras::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_ours({
      {"fit] expected data, got inputs of 0 rows",
       [&] {
         model.fit(zeros({0, 2}), zeros({0, 1}));
       }},
      {"evaluate] expected data, got inputs of 0 rows",
       [&] {
         model.evaluate(zeros({0, 2}), zeros({0, 1}));
       }},
  });
}

}  // namespace
}  // namespace cohort
