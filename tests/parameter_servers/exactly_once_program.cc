// SPDX-License-Identifier: Apache-2.0
//
// A job whose functions change all that a function can change on parameter servers:
//
//   exactly_once_program COUNT REPLICAS once|often
//
// The chief schedules COUNT functions. Each adds 1 to a count, to all of a vector and to one row of
// a table, makes a step of an optimizer with slots, and counts the row of its worker's data that it
// has read. One more changes things, and throws. Then the chief says what has come of that.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/saved_iterator.h"
#include "cohort/keras/constraints.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr int64_t kRows = 10;
constexpr int64_t kWide = 1000;
constexpr int64_t kWorkers = 2;
constexpr int64_t kDataRows = 4000;
constexpr double kRate = 0.01;
constexpr double kMomentum = 0.9;

/// Adds 1 to a row of a table with rows of `width`.
void count_row(const Variable& table, int64_t row) {
  const Shape& shape = table.shape();
  table.scatter_add({.values = full({1, shape[1]}, 1.0),
                     .indices = from_vector(std::vector<int64_t>{row}, {1}),
                     .dense_shape = shape});
}

struct Trainer {
  Variable weight{full({kWide}, 0.0), {.name = "weight"}};
  keras::SGD optimizer{{.learning_rate = kRate, .momentum = kMomentum}};
  Variable bounded{scalar(1), {.name = "bounded", .constraint = keras::NonNeg().function()}};
  keras::SGD bounding{{.learning_rate = kRate}};
};
std::shared_ptr<Trainer> make_trainer() {
  auto out = std::make_shared<Trainer>();
  out->optimizer.build({out->weight});
  out->bounding.build({out->bounded});
  return out;
}
std::shared_ptr<SavedIterator> make_rows() {
  return std::make_shared<SavedIterator>(Dataset::range(kDataRows), SavedIteratorOptions{"place"});
}

void change_all(const Variable& count, const Variable& wide, const Variable& table,
                const Variable& seen, Trainer& trainer, SavedIterator& rows, int64_t i) {
  const auto row = rows.next()->as<Tensor>().item<int64_t>();
  count_row(seen, get_current_worker_index() * kDataRows + row);
  wide.assign_add(full({kWide}, 1.0));
  count_row(table, i % kRows);
  trainer.optimizer.apply_gradients({{Gradient(full({kWide}, 1.0)), trainer.weight}});
  count.assign_add(scalar(1));
}
void change_and_throw(const Variable& count, const Variable& wide, SavedIterator& rows) {
  static_cast<void>(rows.next());
  wide.assign_add(full({kWide}, 1000.0));
  count.assign_add(scalar(1000));
  throw InvalidArgument("as it is meant to");
}
void train_bounded(Trainer& trainer) {
  trainer.bounding.apply_gradients({{Gradient(scalar(1)), trainer.bounded}});
}
COHORT_REGISTER_FUNCTION(train_bounded);
COHORT_REGISTER_FUNCTION(make_trainer);
COHORT_REGISTER_FUNCTION(make_rows);
COHORT_REGISTER_FUNCTION(change_all);
COHORT_REGISTER_FUNCTION(change_and_throw);

// Of all numbers of the variable the least and the most.
void say(const char* name, const Variable& variable) {
  const Tensor value = variable.value();
  std::printf("%s %g to %g\n", name, value.min().item<double>(), value.max().item<double>());
}

// Each worker's rows are read in their order, from the first on: 1, 1, ..., 1, 0, 0, ...
void say_what_was_read(const Variable& seen) {
  const std::vector<float> times = to_vector<float>(seen.value());
  int64_t sum = 0;
  bool in_order = true;
  for (int64_t w = 0; w < kWorkers; ++w) {
    float before = 1;
    for (int64_t i = 0; i < kDataRows; ++i) {
      const float now = times[static_cast<std::size_t>(w * kDataRows + i)];
      in_order = in_order && (now == before || (before == 1 && now == 0));
      sum += static_cast<int64_t>(now);
      before = now;
    }
  }
  std::printf("read: %lld, %s\n", static_cast<long long>(sum),
              in_order ? "each row once" : "rows are missing, or were read again");
}

// Momentum remembers each step: one that counts twice, or without its slot, is seen for ever.
void say_what_was_trained(const Trainer& trainer, int steps) {
  double weight = 0;
  double velocity = 0;
  for (int i = 0; i < steps; ++i) {
    velocity = kMomentum * velocity - kRate;
    weight += velocity;
  }
  const auto got = trainer.weight.value()[0].item<double>();
  std::printf("steps: %lld, weight %s (%g, expected %g)\n",
              static_cast<long long>(trainer.optimizer.iterations().value().item<int64_t>()),
              std::abs(got - weight) < kRate / 2 ? "right" : "wrong", got, weight);
}

void lead(const std::shared_ptr<ClusterResolver>& resolver, int scheduled, int replicas,
          bool once) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver, .replicas = replicas});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable count(scalar(0), {.name = "count"});
  const Variable wide(full({kWide}, 0.0), {.name = "wide"});
  const Variable table(full({kRows, 4}, 0.0), {.name = "table"});
  const Variable seen(full({kWorkers * kDataRows, 1}, 0.0), {.name = "seen"});
  const auto here = make_trainer();
  const auto trainers = coordinator.create_per_worker_resource(make_trainer);
  const auto rows = coordinator.create_per_worker_resource(make_rows);
  std::printf("made\n");
  std::fflush(stdout);
  for (int64_t i = 0; i < scheduled; ++i) {
    if (once) {
      coordinator.schedule_exactly_once(change_all, count, wide, table, seen, trainers, rows, i);
    } else {
      coordinator.schedule(change_all, count, wide, table, seen, trainers, rows, i);
    }
  }
  coordinator.join();
  if (once) {
    coordinator.schedule_exactly_once(change_and_throw, count, wide, rows);
    try {
      coordinator.join();
    } catch (const InvalidArgument&) {
      std::printf("thrown\n");
    }
    coordinator.schedule_exactly_once(train_bounded, trainers);
    try {
      coordinator.join();
    } catch (const Unimplemented&) {
      std::printf("refused, left at %g\n", here->bounded.value().item<double>());
    }
  }
  say("wide", wide);
  say("table", table);
  say_what_was_read(seen);
  say_what_was_trained(*here, scheduled);
  std::printf("ended: %g added\n", count.value().item<double>());
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? std::atoi(argv[1]) : 100, argc > 2 ? std::atoi(argv[2]) : 1,
         argc > 3 && std::string(argv[3]) == "once");
  });
}
const TestProgram kProgram("exactly_once_program", run);

}  // namespace
