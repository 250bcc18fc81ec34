// SPDX-License-Identifier: Apache-2.0
//
// Trainer's predict. Keeps its state in its calls: several threads may be in here with one model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/internal/leaves.h"
#include "cohort/keras/interrupt.h"
#include "cohort/keras/progress_logger.h"
#include "cohort/keras/trainer.h"
#include "cohort/keras/worker_results.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras::internal {

namespace {

// What predict has of all steps, output by output.
class PredictedRows {
 public:
  explicit PredictedRows(const char* operation) : operation_(operation) {}
  void add(const Element& output) {
    const std::vector<Tensor> leaves = leaves_of(output);
    if (outputs_.empty()) outputs_.resize(leaves.size());
    like_ = output;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      Output& all = outputs_.at(i);
      COHORT_CHECK_ARG(leaves[i].dim() > 0, "[", operation_,
                       "] expected the model to return a row for each example, got a scalar");
      (leaves[i].size(0) > 0 ? all.rows.emplace_back(leaves[i]) : all.no_rows = leaves[i]);
      all.counts.push_back(leaves[i].size(0));
      if (!leaves[i].is_cpu()) on_devices_ += leaves[i].nbytes();
    }
    if (on_devices_ > kMostOnDevices) fetch();
  }
  Element joined(cohort::internal::collectives::Communicator* others, int local_replicas) {
    fetch();
    std::vector<Tensor> leaves;
    for (const Output& all : outputs_) {
      const Tensor mine = all.rows.empty() ? all.no_rows : cohort::concat(all.rows);
      leaves.push_back(others == nullptr ? mine
                                         : rows_of_all(*others, mine, all.counts, local_replicas));
    }
    return with_leaves(like_, leaves);
  }

 private:
  // What devices have computed stays there, so that nothing waits for a step, up to so many bytes.
  static constexpr std::size_t kMostOnDevices = std::size_t{256} << 20U;
  void fetch() {
    on_devices_ = 0;
    for (Output& all : outputs_) {
      for (Tensor& rows : all.rows) rows = rows.to(at::kCPU);
      if (all.no_rows.defined()) all.no_rows = all.no_rows.to(at::kCPU);
    }
  }

  struct Output {
    std::vector<Tensor> rows;
    std::vector<int64_t> counts;  // [step * replicas + replica]
    Tensor no_rows;
  };
  const char* const operation_;
  std::vector<Output> outputs_;
  std::size_t on_devices_ = 0;
  Element like_;
};

}  // namespace

// Each replica its own; not what run() makes one value of.
std::vector<Element> Trainer::outputs_of(const PerReplica<Element>& batch, bool nest) {
  std::vector<Element> outputs(static_cast<std::size_t>(strategy_.extended().num_local_replicas()));
  strategy_.run([&] {
    const auto replica = static_cast<std::size_t>(std::max(0, current_replica()));
    const Element& part = batch[replica];
    outputs[replica] = nest ? model_.predict_nest_step(part) : Element(model_.predict_step(part));
  });
  return outputs;
}

Element Trainer::predict(const keras::DataSource& data, const keras::PredictOptions& options,
                         bool nest) {
  Element out;
  guarded([&] { out = predict_guarded(data, options, nest); });
  return out;
}

Element Trainer::predict_guarded(const keras::DataSource& data,
                                 const keras::PredictOptions& options, bool nest) {
  InputStream input(strategy_, data,
                    {.operation = "predict", .steps = options.steps, .contiguous_shards = true});
  build(input.element_spec());
  const auto progress = std::make_shared<ProgressLogger>(
      input, ProgressLogger::Options{.task = ProgressLogger::Task::kPredict,
                                     .verbose = verbose_here(options.verbose)});
  const CallbackList callbacks = with_progress(options.callbacks, model_, progress);
  const InterruptGuard guard(InterruptGuard::Of::kOther);
  const FailureWatch watch(callbacks);
  const OpenLine line(*progress);
  const c10::AutoGradMode no_grad(false);
  PredictedRows rows("predict");
  input.begin_epoch();
  callbacks.call(&keras::CallbackBase::on_predict_begin);
  for (int64_t step = 0; auto batch = input.next(); ++step) {
    callbacks.call(&keras::CallbackBase::on_predict_batch_begin, step);
    for (const Element& output : outputs_of(*batch, nest)) rows.add(output);
    callbacks.call(&keras::CallbackBase::on_predict_batch_end, step);
    guard.check("predict");
  }
  COHORT_CHECK_ARG(input.steps_taken() > 0, "[predict] expected data, got an empty dataset");
  callbacks.call(&keras::CallbackBase::on_predict_end);
  guard.check("predict");  // in the callbacks of its end
  return rows.joined(others_, strategy_.extended().num_local_replicas());
}

Element Trainer::predict_on(const Element& batch, bool nest) {
  Element out;
  guarded([&] {
    check_rows(batch);
    build(batch.spec());
    const c10::AutoGradMode no_grad(false);
    PredictedRows rows("predict_on_batch");
    for (const Element& output : outputs_of(parts_of(batch), nest)) rows.add(output);
    out = rows.joined(others_, strategy_.extended().num_local_replicas());
  });
  return out;
}

}  // namespace cohort::keras::internal
