// SPDX-License-Identifier: Apache-2.0
#include "gpu_rounds.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "cohort/base/check.h"
#include "places.h"
#include "statistics.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kProofSteps = 10;
constexpr int kWarmSteps = 20;
constexpr std::int64_t kMostSteps = 5000;
constexpr seconds kInitLimit{90};
constexpr seconds kRunLimit{60};
constexpr int kTaskSeconds = 25;  // about what a task takes

std::string last_lines(const std::string& path, std::size_t count) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(line.substr(0, 160));
  }
  std::string out;
  for (std::size_t i = lines.size() - std::min(count, lines.size()); i < lines.size(); ++i) {
    out += " | " + lines[i];
  }
  return out;
}

std::vector<double> numbers_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<double> out;
  for (std::string word; in >> word;) out.push_back(std::strtod(word.c_str(), nullptr));
  return out;
}

}  // namespace

const std::vector<GpuContenderSpec>& gpu_contenders() {
  static const std::vector<GpuContenderSpec> all = {
      {"cohort_eager", "cohort", "eager"},
      {"cohort_fit", "cohort", "fit"},
      {"cohort_captured", "cohort", "captured"},
      {"cohort_fit_eager", "cohort", "fit_eager"},
      {"cohort_fit_host", "cohort", "fit_host"},
      {"torch_eager", "torch", "eager"},
      {"torch_graph", "torch", "graph"},
      {"torch_compiled", "torch", "compiled", true},
      {"torch_reduce_overhead", "torch", "reduce_overhead", true},
      {"jax_jit", "jax", "jit", true},
      {"jax_cudnn", "jax", "cudnn", true, "transformer_bf16"}};
  return all;
}

GpuRounds::GpuRounds(const GpuOptions& options, std::vector<GpuTask> tasks,
                     std::vector<GpuContenderSpec> contenders, std::string scratch)
    : options_(options),
      tasks_(std::move(tasks)),
      contenders_(std::move(contenders)),
      scratch_(std::move(scratch)) {
  fs::create_directories(options_.logs);
}

double GpuRounds::seconds_since_start() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

seconds GpuRounds::left_until(double end) const {
  return seconds(std::max<std::int64_t>(1, std::llround(end - seconds_since_start())));
}

seconds GpuRounds::at_most(seconds limit) const {
  return std::min(limit, left_until(options_.limit_seconds));
}

bool GpuRounds::takes_part(const GpuContenderSpec& spec, const GpuTask& task) {
  return spec.only_task.empty() || spec.only_task == task.name;
}

std::string GpuRounds::folder(const GpuTask& task) const { return scratch_ + "/" + task.name; }

std::vector<std::string> GpuRounds::command(const GpuContenderSpec& spec) const {
  if (spec.family == "cohort") {
    return {default_places().program, "--contender", spec.kind, options_.device};
  }
  const bool torch = spec.family == "torch";
  const std::string device = options_.device.starts_with("CPU") ? "cpu" : "cuda";
  return {torch ? options_.torch_python : options_.jax_python, "-u",
          options_.peers + (torch ? "/gpu_torch_peer.py" : "/gpu_jax_peer.py"), spec.kind, device};
}

// Inductor compiles kernels in processes of its own; all contenders together shall fit the cores.
std::vector<std::string> GpuRounds::variables(const GpuContenderSpec& spec, bool is_large) {
  if (spec.family == "cohort") return {};
  std::vector<std::string> out = {"MALLOC_MMAP_THRESHOLD_=1073741824",
                                  "MALLOC_TRIM_THRESHOLD_=2147483647",
                                  "XLA_PYTHON_CLIENT_PREALLOCATE=false", "TF_CPP_MIN_LOG_LEVEL=2"};
  if (spec.compiles) {
    out.push_back(str_cat("TORCHINDUCTOR_COMPILE_THREADS=", is_large ? 8 : 2));
  }
  return out;
}

void GpuRounds::launch(Lane& lane, const GpuContenderSpec& spec, const std::string& log_name) {
  lane.log = options_.logs + "/" + log_name + ".log";
  const bool is_large = log_name.find("resnet50") != std::string::npos;
  lane.has_greeted = lane.is_ready = false;
  try {
    lane.process =
        std::make_unique<ContenderProcess>(command(spec), variables(spec, is_large), lane.log);
  } catch (const std::exception& error) {
    lane.failure = error.what();
  }
}

// One for each task where it compiles, else one for all.
GpuRounds::Lane& GpuRounds::lane(const GpuContenderSpec& spec, const GpuTask& task) {
  std::string name = spec.compiles ? spec.name + "_" + task.name : spec.name;
  std::replace(name.begin(), name.end(), ':', '_');
  Lane& found = lanes_[name];
  if (!found.process && found.failure.empty()) launch(found, spec, name);
  return found;
}

std::string GpuRounds::answer(Lane& lane, seconds limit) {
  COHORT_CHECK_STATE(lane.process, lane.failure.empty() ? "it is gone" : lane.failure);
  if (!lane.has_greeted) lane.versions = lane.process->receive(limit);
  lane.has_greeted = true;
  return lane.process->receive(limit);
}

std::string GpuRounds::ask(Lane& lane, const std::string& line, seconds limit) {
  COHORT_CHECK_STATE(lane.process, lane.failure.empty() ? "it is gone" : lane.failure);
  lane.process->send(line);
  return answer(lane, limit);
}

// At once, whatever it is doing.
void GpuRounds::end(Lane& lane) {
  if (lane.process) ::kill(-lane.process->process_group(), SIGKILL);
  lane.process.reset();
}

std::string GpuRounds::failure_of(const Lane& lane, const std::exception& error) {
  const std::string text = error.what();
  return text.find(lane.log) == std::string::npos ? text : text + last_lines(lane.log, 2);
}

void GpuRounds::start() {
  for (const GpuTask& task : tasks_) {
    for (const GpuContenderSpec& spec : contenders_) {
      if (takes_part(spec, task)) lane(spec, task);
    }
  }
  for (const GpuTask& task : tasks_) {
    write_gpu_task(task, folder(task));
    for (const GpuContenderSpec& spec : contenders_) {
      if (!spec.compiles || !takes_part(spec, task)) continue;
      Lane& one = lane(spec, task);
      if (one.process) one.process->send("init " + folder(task));
    }
  }
  for (const GpuTask& task : tasks_) {
    for (const GpuContenderSpec& spec : contenders_) {
      if (!spec.compiles || !takes_part(spec, task)) continue;
      Lane& one = lane(spec, task);
      try {
        answer(one, left_until(options_.start_seconds));
        one.is_ready = true;
      } catch (const std::exception& error) {
        if (one.failure.empty()) one.failure = "left out: " + failure_of(one, error);
        end(one);
      }
    }
  }
  std::printf("started and compiled after %.0f s\n", seconds_since_start());
}

// What fails once is out of this task; its process is started anew for the next one.
template <class Work>
void GpuRounds::guarded(GpuEntry& entry, const GpuTask& task, const Work& work) {
  if (!entry.failure.empty()) return;
  Lane& one = lane(entry.spec, task);
  try {
    work(one);
    entry.versions = one.versions;
  } catch (const std::exception& error) {
    entry.failure = failure_of(one, error);
    end(one);
  }
}

void GpuRounds::sample_all(GpuTable& table) {
  const auto run = [&](GpuEntry& entry, std::int64_t steps) {
    GpuSample sample{steps, 0, 0};
    guarded(entry, table.task, [&](Lane& lane) {
      const std::vector<double> times =
          numbers_of(ask(lane, str_cat("run ", steps), at_most(kRunLimit)));
      COHORT_CHECK_STATE(times.size() == 2, "expected two times, got ", times.size());
      sample.us = times[0] / 1e3 / static_cast<double>(steps);
      sample.host_us = times[1] / 1e3 / static_cast<double>(steps);
    });
    return sample;
  };
  for (GpuEntry& entry : table.entries) {
    run(entry, kWarmSteps);
    const double us = run(entry, kWarmSteps / 2).us;
    const double fits = us > 0 ? options_.seconds * 1e6 / us : 1;
    entry.steps = std::clamp(static_cast<std::int64_t>(fits), std::int64_t{3}, kMostSteps);
  }
  std::mt19937 random(20261126);
  std::vector<std::size_t> order(table.entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int round = 0; round < options_.samples; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      GpuEntry& entry = table.entries[i];
      const GpuSample sample = run(entry, entry.steps);
      if (entry.failure.empty()) entry.samples.push_back(sample);
    }
  }
}

void GpuRounds::prepare(GpuTable& table) {
  const GpuTask& task = table.task;
  for (GpuEntry& entry : table.entries) {
    guarded(entry, task, [&](Lane& one) {
      COHORT_CHECK_STATE(one.process, one.failure);
      if (!one.is_ready) one.process->send("init " + folder(task));
    });
  }
  for (GpuEntry& entry : table.entries) {
    guarded(entry, task, [&](Lane& one) {
      if (!one.is_ready) answer(one, at_most(kInitLimit));
    });
  }
  // One after the other: here libraries try out which of their convolutions is the fastest.
  for (GpuEntry& entry : table.entries) {
    guarded(entry, task, [&](Lane& one) {
      entry.curve = numbers_of(ask(one, str_cat("curve ", kProofSteps), at_most(kInitLimit)));
      COHORT_CHECK_STATE(entry.curve.size() == kProofSteps, "expected ", kProofSteps,
                         " losses, got ", entry.curve.size());
    });
  }
}

// What the profiler cannot do says nothing of the times.
void GpuRounds::ask_for_kernels(GpuEntry& entry, const GpuTask& task) {
  GpuEntry asked{.spec = entry.spec};
  guarded(asked, task, [&](Lane& one) {
    entry.kernels_us = numbers_of(ask(one, "kernels 10", at_most(kRunLimit))).at(0);
  });
  if (!asked.failure.empty()) {
    std::printf("%s: no sum of kernels: %s\n", entry.spec.name.c_str(), asked.failure.c_str());
  }
}

// Gives the memory back.
void GpuRounds::finish(GpuEntry& entry, const GpuTask& task) {
  if (!entry.spec.compiles && !entry.failure.empty()) return;  // its process has ended
  Lane& one = lane(entry.spec, task);
  if (entry.spec.compiles) {
    one.process.reset();
    if (one.failure.empty()) one.failure = "it is gone";
  } else {
    GpuEntry asked{.spec = entry.spec};
    guarded(asked, task, [&](Lane& other) { ask(other, "drop", at_most(kRunLimit)); });
  }
}

GpuTable GpuRounds::measure(const GpuTask& task) {
  GpuTable table{task, {}, {}};
  if (seconds_since_start() > options_.limit_seconds - kTaskSeconds) {
    table.failure = str_cat("no time left of ", options_.limit_seconds, " s");
    return table;
  }
  for (const GpuContenderSpec& spec : contenders_) {
    if (takes_part(spec, task)) table.entries.push_back({.spec = spec});
  }
  prepare(table);
  compare_curves(table);
  sample_all(table);
  for (GpuEntry& entry : table.entries) {
    if (entry.spec.name == "torch_eager" && entry.failure.empty()) ask_for_kernels(entry, task);
    finish(entry, task);
  }
  return table;
}

GpuUpdate GpuRounds::measure_update() {
  GpuUpdate out;
  Lane one;
  launch(one, gpu_contenders().front(), "adam");
  try {
    const std::vector<double> speeds = numbers_of(ask(one, "update 20", at_most(kRunLimit)));
    COHORT_CHECK_STATE(speeds.size() == 2, "expected two speeds, got ", speeds.size());
    out.update_gbytes = speeds[0];
    out.copy_gbytes = speeds[1];
  } catch (const std::exception& error) {
    out.failure = failure_of(one, error);
  }
  return out;
}

void compare_curves(GpuTable& table) {
  for (std::size_t i = 0; i < kProofSteps; ++i) {
    std::vector<double> all;
    for (const GpuEntry& entry : table.entries) {
      if (i < entry.curve.size() && std::isfinite(entry.curve[i])) all.push_back(entry.curve[i]);
    }
    const double middle = median(all);
    for (GpuEntry& entry : table.entries) {
      if (i >= entry.curve.size()) continue;
      const double error = std::abs(entry.curve[i] - middle) / std::abs(middle);
      // NaN is no equal work.
      entry.difference = error <= entry.difference ? entry.difference : error;
      if (std::isnan(error)) entry.difference = std::numeric_limits<double>::infinity();
    }
  }
}

}  // namespace cohort::bench
