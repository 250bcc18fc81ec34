// SPDX-License-Identifier: Apache-2.0
//
// For tests: jobs whose workers are threads, each with variables, gradients and an update.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/sanitizers.h"
#include "cohort/collectives/test_job.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal::variables::exchange_test {

using testing::run_with_deadline;
using update_rules::adam_step;
using update_rules::AdamConfig;

inline constexpr std::chrono::seconds kLimit{60};
// More than one block of norms in a variable, borders of slices and buckets anywhere.
inline constexpr int64_t kSizes[] = {37, 1, 10000, 16, 5003};

// Where numbers differ, and not all of them.
inline void expect_same(const std::vector<double>& got, const std::vector<double>& expected,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  std::size_t differ = 0;
  std::size_t first = 0;
  for (std::size_t i = got.size(); i-- > 0;) {
    if (std::bit_cast<uint64_t>(got[i]) == std::bit_cast<uint64_t>(expected[i])) continue;
    ++differ;
    first = i;
  }
  EXPECT_EQ(differ, 0U) << what << ": from element " << first << " on, " << got[first]
                        << " instead of " << expected[first];
}

struct WorldOptions {
  UpdaterOptions update = {};
  ParameterPlacement placement = ParameterPlacement::kMirrored;
  std::shared_ptr<CrossDeviceOps> ops = {};
  collectives::Carrier carrier = collectives::Carrier::kThreads;
  std::size_t bytes_per_pack = 0;
  bool bfloat16_gradients = false;
  bool on_gpus = false;           // those of a backend that the test brings
  bool rounds_gradients = false;  // before anybody gets them; all variables are of float32
};

// One process of a job: replicas, their variables and an update.
class Worker {
 public:
  Worker(int replicas, std::shared_ptr<collectives::Communicator> communicator,
         const WorldOptions& options)
      : group({.replicas = replicas}), first_(communicator ? communicator->rank() * replicas : 0) {
    LocalVariablesOptions local{.devices = {},
                                .cross_device_ops = options.ops,
                                .placement = options.placement,
                                .communicator = std::move(communicator),
                                .bytes_per_bucket = options.bytes_per_pack,
                                .bfloat16_gradients = options.bfloat16_gradients};
    rounds_ = options.rounds_gradients;
    for (int r = 0; r < replicas; ++r) {
      local.devices.emplace_back(str_cat(options.on_gpus ? "GPU:" : "CPU:", r));
    }
    creator_ = std::make_shared<LocalVariables>(local);
    const VariableCreatorScope scope(creator_);
    for (const int64_t size : kSizes) {
      const bool is_wide = size == 16 && !options.bfloat16_gradients && !rounds_;
      const DType dtype = is_wide ? kFloat64 : kFloat32;
      variables.emplace_back((arange(size, kFloat64) * 0.01).sin().to(dtype),
                             VariableOptions{.name = str_cat("v", size)});
    }
    update = creator_->make_updater(variables, options.update);
  }

  // Of a local replica: another one for each replica of the job.
  Gradient gradient(std::size_t v, int replica, int step) const {
    const Tensor x = arange(kSizes[v], kFloat64) * 0.37 + 1.3 * (first_ + replica) + step;
    const Tensor out = x.sin().to(variables[v].dtype());
    return rounds_ ? out.to(kBFloat16).to(kFloat32) : out;
  }
  // In the arena, as a tape leaves them.
  Gradients gradients(int replica, int step) const {
    const auto lease = std::make_shared<GradientLease>();
    std::vector<GradientAndVariable> pairs;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      const Tensor place = lease->place(variables[v].impl());
      pairs.push_back({place.copy_(gradient(v, replica, step).dense()), variables[v]});
    }
    return Gradients(std::move(pairs), lease);
  }
  void apply(int step, double learning_rate = 0.01) {
    group.run([&](int r) {
      update->apply(gradients(r, step),
                    adam_step(AdamConfig{.learning_rate = learning_rate}, step + 1), 0.001);
    });
  }
  int first() const { return first_; }

  // All replicas' parameters, which have to be equal.
  std::vector<double> parameters() const {
    std::vector<double> out;
    for (const Variable& v : variables) {
      const auto parts = v.components();
      for (const Variable& part : parts) {
        expect_same(to_vector<double>(part.value()), to_vector<double>(parts[0].value()),
                    part.name());
      }
      for (const double x : to_vector<double>(v.value())) out.push_back(x);
    }
    return out;
  }
  std::vector<double> slots() const {
    std::vector<double> out;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      for (int s = 0; s < update->slot_count(); ++s) {
        for (const double x : to_vector<double>(update->slot(v, s))) out.push_back(x);
      }
    }
    return out;
  }

  runtime::ReplicaGroup group;
  std::vector<Variable> variables;
  std::shared_ptr<Updater> update;

 private:
  const int first_;
  bool rounds_ = false;
  std::shared_ptr<LocalVariables> creator_;
};

// The processes of a job: a W(replicas, communicator, options) for each rank.
template <class W>
class Workers {
 public:
  template <class Options>
  Workers(collectives::Carrier carrier, int workers, int replicas, const Options& options)
      : job(carrier, workers), workers_(static_cast<std::size_t>(workers)) {
    // All at once: making variables is something that workers do together.
    run_with_deadline(kLimit, [&] {
      job.run([&](collectives::Communicator& c) {
        const int w = c.rank();
        workers_[static_cast<std::size_t>(w)] =
            std::make_unique<W>(replicas, job.share(w), options);
      });
    });
  }
  W& operator[](int worker) { return *workers_[static_cast<std::size_t>(worker)]; }
  W& of(const collectives::Communicator& c) { return (*this)[c.rank()]; }
  void run(base::FunctionRef<void(W& worker)> body) {
    run_with_deadline(kLimit, [&] { job.run([&](collectives::Communicator& c) { body(of(c)); }); });
  }
  std::vector<std::exception_ptr> try_run(base::FunctionRef<void(W& worker)> body) {
    return run_with_deadline(
        kLimit, [&] { return job.try_run([&](collectives::Communicator& c) { body(of(c)); }); });
  }
  // What a worker answers, for each of them.
  template <class F>
  auto ask(const F& question) {
    std::vector<std::invoke_result_t<const F&, W&>> answers(workers_.size());
    run_with_deadline(kLimit, [&] {
      job.run([&](collectives::Communicator& c) {
        answers[static_cast<std::size_t>(c.rank())] = question(of(c));
      });
    });
    return answers;
  }

  collectives::TestJob job;

 private:
  std::vector<std::unique_ptr<W>> workers_;
};

class World : public Workers<Worker> {
 public:
  World(int workers, int replicas, const WorldOptions& options = {})
      : Workers(options.carrier, workers, replicas, with_slots(options)) {}
  // Of all workers, which have to be equal.
  std::vector<double> parameters() {
    const auto all = ask([](Worker& w) { return w.parameters(); });
    for (const auto& one : all) expect_same(one, all[0], "another worker");
    return all[0];
  }
  std::vector<double> slots() {
    const auto all = ask([](Worker& w) { return w.slots(); });
    for (const auto& one : all) expect_same(one, all[0], "another worker's slots");
    return all[0];
  }

 private:
  static WorldOptions with_slots(WorldOptions options) {
    if (options.update.slot_initial.empty()) options.update.slot_initial = {0, 0.25};
    return options;
  }
};

inline std::string text_of(const std::exception_ptr& error) {
  return testing::error_text([&] {
    if (error) std::rethrow_exception(error);
  });
}

inline std::vector<WorldOptions> clippings() {
  // A sanitizer, under which each takes ten times as long, sees the same code in two.
  if (COHORT_UNDER_SANITIZER != 0) return {{}, {.update = {.global_clipnorm = 2.0}}};
  return {{},
          {.update = {.clipvalue = 0.5}},
          {.update = {.clipnorm = 1.5}},
          {.update = {.global_clipnorm = 2.0}},
          {.update = {.decays = {true, false, true, true, false}}}};
}

struct Trained {
  std::vector<double> parameters;
  std::vector<double> slots;
  bool operator==(const Trained&) const = default;
};

inline Trained train(int workers, int replicas, const WorldOptions& options, int steps = 4) {
  World world(workers, replicas, options);
  for (int step = 0; step < steps; ++step) world.run([&](Worker& w) { w.apply(step); });
  return {world.parameters(), world.slots()};
}

// Workers of one replica have what one process with as many replicas has, to the bit, however the
// gradients are cut and carried.
inline void expect_bits_of_one_process(const WorldOptions& process, const WorldOptions& workers,
                                       const std::vector<collectives::Carrier>& carriers) {
  for (const int count : {2, 3}) {
    const Trained expected = train(1, count, process);
    for (const std::size_t bytes : {std::size_t{2000}, std::size_t{4} << 20}) {
      for (const collectives::Carrier carrier : carriers) {
        WorldOptions options = workers;
        options.update.bytes_per_bucket = bytes;
        options.carrier = carrier;
        const Trained got = train(count, 1, options);
        const std::string what = str_cat(count, " workers, ", bytes, ", ", int(carrier));
        expect_same(got.parameters, expected.parameters, what);
        expect_same(got.slots, expected.slots, what);
      }
    }
  }
}

}  // namespace cohort::internal::variables::exchange_test
