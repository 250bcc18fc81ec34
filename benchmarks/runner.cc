// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <sstream>

#include "cohort/base/check.h"
#include "statistics.h"

namespace cohort::bench {
namespace {

using std::chrono::seconds;

constexpr seconds kStartLimit{120};    // imports
constexpr seconds kPrepareLimit{240};  // compilers run
constexpr seconds kRunLimit{60};

// The first numbers of an answer.
std::pair<double, double> two_numbers(const std::string& text) {
  std::istringstream in(text);
  std::string first, second;
  in >> first >> second;
  return {std::strtod(first.c_str(), nullptr), std::strtod(second.c_str(), nullptr)};
}

std::vector<int> replica_cores(const std::vector<int>& cores, int replicas) {
  std::vector<int> result;
  for (int r = 0; r < replicas; ++r) result.push_back(cores[r % cores.size()]);
  return result;
}

// Which process serves a contender in cases of so many replicas; also its log's name.
std::string key(const ContenderSpec& spec, int replicas) {
  return str_cat(spec.name, "_", replicas);
}

bool alive(const Entry& entry) { return entry.status == "ok"; }

}  // namespace

// The step cannot be faster than its products at the peak of fused multiply-adds (of as many
// threads as there are replicas, measured between the samples) and, after them, the bytes that Adam
// must move at memcpy's bandwidth on as much memory (machine.h has the bytes):
//   limit = flops / peak(R threads) + update_bytes / bandwidth(R threads)
// For the mlp at batch 32 that is 38.8 Mflop and 7.54 MB.
double Limit::us() const { return flops / fma_gflops / 1e3 + update_bytes / copy_gbytes / 1e3; }

Runner::Runner(std::vector<ContenderSpec> roster, RunOptions options)
    : roster_(std::move(roster)), options_(std::move(options)), cores_(usable_cores()) {}

// C++ contenders take the number of replicas from the command line, so that they are confined to as
// many cores before any library looks how many there are.
void Runner::launch(const ContenderSpec& spec, int replicas) {
  Running& running = running_[key(spec, replicas)];
  if (running.process) return;
  auto command = spec.command;
  if (spec.max_replicas > spec.min_replicas) {
    command.insert(command.end(), {"--replicas", std::to_string(spec.same_work ? replicas : 1)});
  }
  auto environment = spec.environment;
  environment.push_back("COHORT_BENCH_CORES=" + joined(cores_, ","));
  const std::string log = options_.logs + "/" + key(spec, replicas) + ".log";
  try {
    running.process = std::make_unique<ContenderProcess>(command, environment, log);
  } catch (const Error& error) {
    running.failure = error.what();
  }
}

void Runner::start(const std::vector<Case>& cases) {
  for (const ContenderSpec& spec : roster_) {
    for (const Case& c : cases) {
      if (spec.takes_part(c) && spec.missing.empty()) launch(spec, c.replicas);
    }
  }
  for (auto& [name, running] : running_) {
    if (!running.process) continue;
    try {
      running.versions = running.process->receive(kStartLimit);
    } catch (const Error& error) {
      running.failure = error.what();
      running.process.reset();
    }
  }
}

Entry Runner::enter(const ContenderSpec& spec, int replicas) {
  Entry entry;
  entry.spec = spec;
  entry.process = key(spec, replicas);
  const auto found = running_.find(entry.process);
  if (!spec.missing.empty() || found == running_.end()) {
    entry.status = "missing";
    entry.reason = spec.missing;
  } else if (!found->second.process) {
    entry.status = "failed";
    entry.reason = found->second.failure;
  } else {
    entry.versions = found->second.versions;
  }
  return entry;
}

// Talks to a contender; one that fails is out for the rest of the run.
void Runner::guarded(Entry& entry, const std::function<void(ContenderProcess&)>& talk) {
  if (!alive(entry)) return;
  Running& running = running_[entry.process];
  try {
    talk(*running.process);
  } catch (const Error& error) {
    entry.status = "failed";
    entry.reason = error.what();
    running.failure = error.what();
    running.process.reset();
  }
}

void Runner::prepare(const Case& c, std::vector<Entry>& entries) {
  const std::string path = options_.scratch + "/workload.bin";
  export_workload(c, options_.images, path);
  for (Entry& entry : entries) {
    guarded(entry, [&](ContenderProcess& process) { process.send("init " + path); });
  }
  for (Entry& entry : entries) {
    guarded(entry, [&](ContenderProcess& process) { process.receive(kPrepareLimit); });
  }
  unlink(path.c_str());  // whoever maps it keeps it
}

// All start from the same weights and see the same batches, so all must come to the same loss.
void Runner::prove_same_work(const Case& c, std::vector<Entry>& entries) {
  for (Entry& entry : entries) {
    guarded(entry, [&](ContenderProcess& process) {
      process.send("loss " + std::to_string(proof_steps(c)));
      std::tie(entry.loss, entry.divergence) = two_numbers(process.receive(kPrepareLimit));
    });
  }
  std::vector<double> losses;
  for (const Entry& entry : entries) {
    if (alive(entry) && entry.spec.same_work) losses.push_back(entry.loss);
  }
  if (losses.empty()) return;
  const double reference = median(losses);
  for (Entry& entry : entries) {
    if (!alive(entry) || !entry.spec.same_work) continue;
    entry.loss_error = std::abs(entry.loss - reference) / std::abs(reference);
    if (!(entry.loss_error <= kProofTolerance) || !(entry.divergence <= 1e-6)) {
      entry.status = "mismatch";
      entry.reason = str_cat("loss ", entry.loss, " against ", reference, ", replicas differ by ",
                             entry.divergence);
    }
  }
}

// As many steps as fit a sample, a multiple of what Keras runs at a time.
void Runner::calibrate(std::vector<Entry>& entries) {
  constexpr int kMultiple = 50;
  for (Entry& entry : entries) {
    guarded(entry, [&](ContenderProcess& process) {
      process.send("run " + std::to_string(kMultiple));
      const double ns = two_numbers(process.receive(kRunLimit)).first / kMultiple;
      const double blocks = options_.seconds * 1e9 / ns / kMultiple;
      entry.steps = kMultiple * std::max<std::int64_t>(1, std::llround(blocks));
    });
  }
}

Sample Runner::sample(Entry& entry, const Probe& before) {
  Sample sample;
  sample.before = before;
  sample.steps = entry.steps;
  guarded(entry, [&](ContenderProcess& process) {
    const std::vector<int> groups = {process.process_group(), getpgrp()};
    const auto start = std::chrono::steady_clock::now();
    const CpuTime cpu_before = cpu_time(groups);
    process.send("run " + std::to_string(entry.steps));
    sample.us = two_numbers(process.receive(kRunLimit)).first / entry.steps / 1e3;
    const CpuTime cpu_after = cpu_time(groups);
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double others =
        (cpu_after.machine - cpu_before.machine) - (cpu_after.groups - cpu_before.groups);
    sample.other_load = std::max(0.0, others / wall / sysconf(_SC_NPROCESSORS_ONLN));
  });
  sample.after = probe(cores_);
  sample.state = classify(sample.before, sample.after, sample.other_load);
  return sample;
}

void Runner::measure(CaseResult& result) {
  const Case& c = result.benchmark_case;
  std::mt19937 shuffler(c.batch * 31 + c.replicas);
  const auto cores = replica_cores(cores_, c.replicas);
  const std::int64_t parameters = [&] {
    std::int64_t n = 0;
    for (const Parameter& parameter : model_parameters(c.model)) n += parameter.size();
    return n;
  }();
  std::vector<double> peaks, bandwidths;
  for (int round = 0; round < options_.rounds; ++round) {
    std::vector<Entry*> order;
    for (Entry& entry : result.entries) {
      if (alive(entry)) order.push_back(&entry);
    }
    std::shuffle(order.begin(), order.end(), shuffler);
    bandwidths.push_back(copy_gbytes_per_thread(parameters, cores));
    peaks.push_back(fma_gflops(cores));
    Probe before = probe(cores_);
    for (Entry* entry : order) {
      Sample taken = sample(*entry, before);
      taken.round = round;
      before = taken.after;
      if (c.replicas <= 2) peaks.push_back(c.replicas == 1 ? before.fma1 : before.fma2);
      if (alive(*entry)) entry->samples.push_back(taken);
    }
  }
  // A peak is what the machine showed at its best moments of the run.
  result.limit = {product_flops(c) * c.replicas, quantile(peaks, 0.9),
                  update_bytes(parameters, c.replicas), quantile(bandwidths, 0.9)};
}

CaseResult Runner::run(const Case& c) {
  CaseResult result{c, {}, {}};
  for (const ContenderSpec& spec : roster_) {
    if (spec.takes_part(c)) result.entries.push_back(enter(spec, c.replicas));
  }
  std::fprintf(stderr, "step_bench: %s: preparing %zu contenders\n", c.name().c_str(),
               result.entries.size());
  prepare(c, result.entries);
  prove_same_work(result.benchmark_case, result.entries);
  calibrate(result.entries);
  std::fprintf(stderr, "step_bench: %s: %d rounds\n", c.name().c_str(), options_.rounds);
  measure(result);
  return result;
}

}  // namespace cohort::bench
