// SPDX-License-Identifier: Apache-2.0
//
// A job whose chief may be started again at any moment:
//
//   resumed_program COUNT REPLICAS FOLDER SAVE_EVERY
//
// The chief schedules COUNT functions with ids, from the last checkpoint's step on. Each adds 1 to
// a count, to all of a vector and to one row of a table, and counts the row of its worker's data
// that it has read. After every SAVE_EVERY of them, if that is not 0, it saves a checkpoint and
// forgets what has ended.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/saved_iterator.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr int64_t kRows = 10;
constexpr int64_t kWide = 1000;
constexpr int64_t kWorkers = 2;
constexpr int64_t kDataRows = 4000;

void count_row(const Variable& table, int64_t row) {
  const Shape& shape = table.shape();
  table.scatter_add({.values = full({1, shape[1]}, 1.0),
                     .indices = from_vector(std::vector<int64_t>{row}, {1}),
                     .dense_shape = shape});
}
std::shared_ptr<SavedIterator> make_saved_rows() {
  return std::make_shared<SavedIterator>(Dataset::range(kDataRows), SavedIteratorOptions{"place"});
}
double change(const Variable& count, const Variable& wide, const Variable& table,
              const Variable& seen, SavedIterator& rows, int64_t i) {
  const auto row = rows.next()->as<Tensor>().item<int64_t>();
  count_row(seen, get_current_worker_index() * kDataRows + row);
  wide.assign_add(full({kWide}, 1.0));
  count_row(table, i % kRows);
  count.assign_add(scalar(1));
  return static_cast<double>(i * i);
}
double change_or_say(const Variable& count, const Variable& wide, const Variable& table,
                     const Variable& seen, SavedIterator& rows, int64_t i) {
  try {
    return change(count, wide, table, seen, rows, i);
  } catch (const FailedPrecondition& e) {
    std::printf("refused: %s\n", e.what());
    std::fflush(stdout);
    throw;
  }
}
double square(double x) { return x * x; }
COHORT_REGISTER_FUNCTION(make_saved_rows);
COHORT_REGISTER_FUNCTION(change_or_say);
COHORT_REGISTER_FUNCTION(square);

struct Places {
  std::string folder = {};
  int64_t save_every = 0;
};

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

void lead(const std::shared_ptr<ClusterResolver>& resolver, int64_t scheduled, int replicas,
          const Places& places) {
  const ParameterServerStrategy strategy(
      {.cluster_resolver = resolver,
       .replicas = replicas,
       .journal = JournalOptions{.folder = places.folder + "/journal", .sync = false}});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable count(scalar(0), {.name = "count"});
  const Variable wide(full({kWide}, 0.0), {.name = "wide"});
  const Variable table(full({kRows, 4}, 0.0), {.name = "table"});
  const Variable seen(full({kWorkers * kDataRows, 1}, 0.0), {.name = "seen"});
  int64_t step = 0;
  CheckpointManager manager(
      Checkpoint({{"count", count}, {"wide", wide}, {"table", table}, {"step", &step}}),
      places.folder + "/saved");
  if (coordinator.resumed()) {
    const auto latest = manager.latest_checkpoint();
    if (latest) Checkpoint({{"step", &step}}).restore(*latest, {.allow_partial = true});
  } else {
    manager.restore_latest();
  }
  std::printf("resumed: %d, from %lld\n", coordinator.resumed() ? 1 : 0,
              static_cast<long long>(step));
  std::fflush(stdout);
  const auto rows = coordinator.create_per_worker_resource(make_saved_rows);
  std::vector<RemoteValue<double>> results;
  const int64_t first = step;
  while (step < scheduled) {
    for (const int64_t end = places.save_every > 0 ? step + places.save_every : scheduled;
         step < end; ++step) {
      results.push_back(coordinator.schedule_exactly_once(
          {.id = str_cat("step ", step)}, change_or_say, count, wide, table, seen, rows, step));
      results.push_back(
          coordinator.schedule({.id = str_cat("plain ", step)}, square, static_cast<double>(step)));
    }
    coordinator.join();
    internal::base::failpoint("program.joined");
    if (places.save_every == 0) continue;
    manager.save();
    internal::base::failpoint("program.saved");
    coordinator.forget_finished();
  }
  bool is_right = true;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto x = static_cast<double>(first + static_cast<int64_t>(i / 2));
    is_right = is_right && coordinator.fetch(results[i]) == x * x;
  }
  std::printf("results %s\n", is_right ? "right" : "wrong");
  say("wide", wide);
  say("table", table);
  say_what_was_read(seen);
  std::printf("ended: %g added\n", count.value().item<double>());
}

int run(int argc, char** argv) {
  if (argc != 5) return 2;
  return run_job([&](const auto& resolver) {
    lead(resolver, std::atoi(argv[1]), std::atoi(argv[2]),
         {.folder = argv[3], .save_every = std::atoi(argv[4])});
  });
}
const TestProgram kProgram("resumed_program", run);

}  // namespace
