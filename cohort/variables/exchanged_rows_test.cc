// SPDX-License-Identifier: Apache-2.0
//
// Gradients that are rows of a table, between workers, which are threads here: the bits of one
// process, what travels, and what a failure leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>

#include "cohort/base/sanitizers.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/test_exchange.h"

namespace cohort::internal::variables {
namespace {

using namespace exchange_test;
using update_rules::AdagradStep;
using update_rules::Rule;
using update_rules::SgdStep;
using Numbers = std::vector<float>;

constexpr int64_t kWidth = 5;

/// What replica `id` of all brings of the table at a step.
enum class TableGradient { kRows, kDense, kNone };
using Plan = std::function<TableGradient(int id, int step)>;

struct TableOptions {
  int64_t rows = 41;
  UpdaterOptions update = {};
  Rule rule = SgdStep{.learning_rate = 0.1};
  double weight_decay = 0;
  Plan plan = [](int, int) { return TableGradient::kRows; };
  int steps = 5;
};

IndexedSlices rows_of(int id, int step, int64_t table_rows) {
  const std::vector<int64_t> rows = {(7 * step + 3 * id) % table_rows,
                                     5,
                                     (11 * step + id) % table_rows,
                                     5,
                                     table_rows - 1 - id,
                                     17};
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor values = (arange(count * kWidth, kFloat32) * 0.7 + id + step).sin();
  return {values.reshape({count, kWidth}), from_vector(rows, {count}), {table_rows, kWidth}};
}

/// One process: a table between two dense variables.
class TableWorker {
 public:
  TableWorker(int replicas, std::shared_ptr<collectives::Communicator> communicator,
              const TableOptions& options)
      : group({.replicas = replicas}),
        options_(options),
        first_(communicator ? communicator->rank() * replicas : 0) {
    LocalVariablesOptions local{.devices = {}, .communicator = std::move(communicator)};
    for (int r = 0; r < replicas; ++r) local.devices.emplace_back(str_cat("CPU:", r));
    creator_ = std::make_shared<LocalVariables>(local);
    const VariableCreatorScope scope(creator_);
    for (const Shape& shape : {Shape{9}, Shape{options.rows, kWidth}, Shape{21}}) {
      const int64_t n = c10::multiply_integers(shape);
      variables.emplace_back((arange(n, kFloat32) * 0.31 + 0.5).sin().reshape(shape));
    }
    update = std::make_unique<FusedUpdate>(variables, options.update);
  }
  void apply(int step) {
    group.run([&](int r) {
      const int id = first_ + r;
      const IndexedSlices rows = rows_of(id, step, options_.rows);
      std::vector<GradientAndVariable> pairs = {
          {(arange(9, kFloat32) + id).cos(), variables[0]},
          {(arange(21, kFloat32) * 0.3 + id).cos(), variables[2]}};
      const TableGradient what = options_.plan(id, step);
      if (what == TableGradient::kRows) pairs.push_back({rows, variables[1]});
      if (what == TableGradient::kDense) pairs.push_back({rows.to_dense(), variables[1]});
      update->apply(Gradients(std::move(pairs)), options_.rule, options_.weight_decay);
    });
  }
  Numbers numbers() const {
    Numbers out;
    const auto add = [&](const Tensor& t) {
      const Numbers values = to_vector<float>(t);
      out.insert(out.end(), values.begin(), values.end());
    };
    for (std::size_t v = 0; v < variables.size(); ++v) {
      const std::vector<Variable> parts = variables[v].components();
      for (const Variable& part : parts) EXPECT_TRUE(part.value().equal(parts[0].value()));
      add(parts[0].value());
      for (int s = 0; s < update->slot_count(); ++s) add(update->slot(v, s));
    }
    return out;
  }

  runtime::ReplicaGroup group;
  std::vector<Variable> variables;
  std::unique_ptr<FusedUpdate> update;

 private:
  const TableOptions options_;
  const int first_;
  std::shared_ptr<LocalVariables> creator_;
};

class TableJob : public Workers<TableWorker> {
 public:
  TableJob(int workers, int replicas, const TableOptions& options)
      : Workers(collectives::Carrier::kThreads, workers, replicas, options) {}
  void train(int steps) {
    run([&](TableWorker& worker) {
      for (int step = 0; step < steps; ++step) worker.apply(step);
    });
  }
  bool try_step(int step) {
    const auto errors = try_run([&](TableWorker& worker) { worker.apply(step); });
    return std::all_of(errors.begin(), errors.end(),
                       [](const std::exception_ptr& error) { return error == nullptr; });
  }
  void set_slots() {
    run([](TableWorker& worker) {
      const Shape shape = worker.variables[1].shape();
      worker.update->set_slot(1, 0, (arange(c10::multiply_integers(shape)) * 0.1).reshape(shape));
    });
  }
  /// Of all workers, which have to be equal.
  Numbers numbers() {
    const auto all = ask([](TableWorker& worker) { return worker.numbers(); });
    for (const Numbers& one : all) EXPECT_EQ(one, all[0]);
    return all[0];
  }
};

Numbers trained(int workers, int replicas, const TableOptions& options) {
  TableJob job(workers, replicas, options);
  job.train(options.steps);
  return job.numbers();
}

std::vector<TableOptions> rules() {
  const UpdaterOptions two{.slot_initial = {0, 0.25}, .lazy_rows = true};
  std::vector<TableOptions> out;
  out.push_back({});
  out.push_back({.update = {.slot_initial = {0.1}},
                 .rule = AdagradStep{.learning_rate = 0.1, .epsilon = 1e-7}});
  out.push_back({.update = two, .rule = adam_step({}, 3), .weight_decay = 0.01});
  out.push_back({.update = two, .rule = adam_step({}, 3)});
  out.back().update.clipnorm = 0.5;
  out.push_back({.update = two, .rule = adam_step({}, 3)});
  out.back().update.global_clipnorm = 0.5;
  out.push_back({.update = {.slot_initial = {0, 0.25}}, .rule = adam_step({}, 3)});  // goes dense
  return out;
}

std::vector<Plan> plans() {
  return {
      [](int, int) { return TableGradient::kRows; },
      // Some without, and none at all in one step.
      [](int id, int step) {
        return id == 1 || step == 2 ? TableGradient::kNone : TableGradient::kRows;
      },
      // Now rows, now a dense gradient.
      [](int, int step) { return step % 3 == 1 ? TableGradient::kDense : TableGradient::kRows; },
      // One of them dense.
      [](int id, int step) {
        return id == 1 && step > 1 ? TableGradient::kDense : TableGradient::kRows;
      }};
}

TEST(ExchangedRows, WorkersHaveTheBitsOfOneProcess) {
  int number = 0;
  for (TableOptions options : rules()) {
    for (const Plan& plan : plans()) {
      SCOPED_TRACE(number++);
      options.plan = plan;
      for (const int workers : {2, 3}) {
        if (COHORT_UNDER_SANITIZER != 0 && workers == 2) continue;
        for (const std::size_t bucket : {std::size_t{256}, std::size_t{4} << 20}) {
          options.update.bytes_per_bucket = bucket;
          EXPECT_EQ(trained(workers, 1, options), trained(1, workers, options)) << workers;
        }
      }
    }
  }
}

TEST(ExchangedRows, SeveralReplicasOfAWorkerAddTheirRowsUp) {
  for (TableOptions options : rules()) {
    for (const Plan& plan : plans()) {
      options.plan = plan;
      const Numbers got = trained(2, 2, options);
      const Numbers process = trained(1, 4, options);
      ASSERT_EQ(got.size(), process.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], process[i], 2e-5) << i;
    }
  }
}

// Slots that are written between steps are what the next one reads, of rows and of dense gradients.
TEST(ExchangedRows, SlotsAreWrittenBetweenSteps) {
  TableOptions options = rules()[3];
  options.plan = plans()[2];
  const auto play = [&](int workers, int replicas) {
    TableJob job(workers, replicas, options);
    for (int step = 0; step < 5; ++step) {
      EXPECT_TRUE(job.try_step(step));
      if (step == 2) job.set_slots();
    }
    return job.numbers();
  };
  EXPECT_EQ(play(3, 1), play(1, 3));
}

// One step's messages are of the rows, not of the table: their bytes, and how many small ones.
TEST(ExchangedRows, OnlyTouchedRowsTravel) {
  struct Traffic {
    std::size_t gathered_bytes = 0;
    int messages = 0;
    bool operator==(const Traffic&) const = default;
  };
  const auto of_step = [](int64_t rows, Plan plan) {
    TableOptions options{.rows = rows, .plan = std::move(plan)};
    options.update.bytes_per_bucket = 4096;
    TableJob job(2, 1, options);
    job.train(2);
    Traffic traffic;
    job.job.before_each(
        0, [&](const collectives::ExchangeKey&, const collectives::CallSignature& call) {
          traffic.gathered_bytes += call.bytes;
          ++traffic.messages;
        });
    EXPECT_TRUE(job.try_step(2));
    job.job.before_each(0, {});
    return traffic;
  };
  const std::size_t table = 20000 * kWidth * sizeof(float);
  const Traffic dense = of_step(20000, [](int, int) { return TableGradient::kDense; });
  EXPECT_GT(dense.gathered_bytes, table);
  EXPECT_GT(dense.messages, 100);
  const Traffic rows = of_step(20000, plans()[0]);
  EXPECT_LT(rows.gathered_bytes, 4096U);
  EXPECT_EQ(rows, of_step(200, plans()[0]));
}

// Worker 1 fails before its n-th operation, for every n: a step is whole everywhere or was not.
TEST(ExchangedRows, AFailureAtAnyOperationWritesNothing) {
  for (const std::size_t rule : {0U, 3U, 4U}) {
    TableOptions options = rules()[rule];
    TableJob undisturbed(2, 2, options);
    undisturbed.train(3);
    TableJob job(2, 2, options);
    job.train(2);
    const Numbers before = job.numbers();
    int failures = 0;
    for (bool failed = true; failed; ++failures) {
      std::atomic<int> left{failures};
      job.job.before_each(1,
                          [&](const collectives::ExchangeKey&, const collectives::CallSignature&) {
                            if (left-- == 0) throw Unavailable("the network is gone", "worker 0");
                          });
      failed = !job.try_step(2);
      job.job.before_each(1, {});
      if (!failed) break;
      run_with_deadline(kLimit,
                        [&] { job.job.run([](collectives::Communicator& c) { c.renew(); }); });
      EXPECT_EQ(job.numbers(), before);
    }
    EXPECT_GT(failures, 4);  // header, bucket, ids, values, rows, commit
    EXPECT_EQ(job.numbers(), undisturbed.numbers());
  }
}

}  // namespace
}  // namespace cohort::internal::variables
