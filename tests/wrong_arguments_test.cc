// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are wrong where a public function takes one: InvalidArgument of ours that names the
// function, without LibTorch's stack trace.
#include <gtest/gtest.h>

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
      {"variable", [] { Variable v{Tensor()}; }},
      {"variable.assign", [=] { v->assign(kNone); }},
      {"variable.assign_add", [=] { v->assign_add(kNone); }},
      {"variable.sparse_read", [=] { v->sparse_read(kNone); }},
      {"gradient_tape.watch",
       [] {
         Tensor x;
         GradientTape().watch(x);
       }},
      {"gradient_tape.gradient", [=] { GradientTape().gradient(kNone, *v); }},
      {"shape_of", [] { shape_of(Tensor()); }},
      {"concat",
       [] {
         concat(std::vector<Tensor>{ones({1}), Tensor()});
       }},
      {"to_vector", [] { to_vector<float>(Tensor()); }},
      {"", [] { IndexedSlices().to_dense(); }},
      {"loss", [] { keras::MeanSquaredError()(Tensor(), ones({1})); }},
      {"loss", [] { keras::Loss("mse")(ones({1}), Tensor()); }},
      {"metric.update_state", [] { keras::Mean().update_state(Tensor()); }},
      {"metric.update_state", [] { keras::Accuracy().update_state(Tensor(), ones({1})); }},
      {"", [] { keras::Dense(2)(Tensor()); }},
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
  });
}

}  // namespace
}  // namespace cohort
