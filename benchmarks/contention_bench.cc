// SPDX-License-Identifier: Apache-2.0
//
// Measures a training step, and the README's program, of Cohort, JAX, TensorFlow, Keras and PyTorch
// at their default threads: alone, beside busy processes, and under a cgroup's quota of CPU time.
// docs/benchmarks.md says how and why.
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "contention.h"
#include "demo_runs.h"
#include "machine.h"
#include "places.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

using Texts = std::vector<std::string>;

struct Options {
  Texts cases = {"demo",     "tiny:16:1", "tiny:16:2", "mlp:32:1",
                 "mlp:32:2", "mlp:256:1", "large:64:1"};
  Texts loads = {"quiet", "busy:1", "busy:2", "busy:4", "quota:1.5", "quota:0.5"};
  Texts only = {"cohort",      "lockstep",        "jax_jit",     "jax_spmd",    "keras_fit",
                "tf_function", "tf_function_xla", "tf_mirrored", "torch_fused", "torch_ddp"};
  std::string data = default_data_folder();
  bool peers = true;
  ContentionOptions run;
};

// What is wrong with a text, for CLI11; empty: nothing.
template <class Parse>
std::string complaint(Parse&& parse, const std::string& text) {
  try {
    parse(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}
std::string complaint_about_case(const std::string& text) {
  return text == "demo" ? "" : complaint(parse_case, text);
}
std::string complaint_about_load(const std::string& text) { return complaint(parse_load, text); }

void declare(CLI::App& app, Options& options) {
  const auto add_list = [&](const std::string& name, Texts& texts, const std::string& meaning) {
    return app.add_option(name, texts, meaning)->delimiter(',')->allow_extra_args(false);
  };
  add_list("--cases", options.cases,
           "demo, or model:batch:replicas (models: tiny, mlp, large, cnn), with commas")
      ->check(complaint_about_case, "");
  add_list("--loads", options.loads, "quiet, busy:N, quota:CORES; quiet is always among them")
      ->check(complaint_about_load, "");
  add_list("--only", options.only, "Only these contenders, named as in step_bench");
  app.add_option("--rounds", options.run.rounds,
                 "Times that each contender is sampled under each load")
      ->check(examples::at_least(1));
  app.add_option("--seconds", options.run.seconds, "Of a sample on a quiet machine")
      ->check(examples::at_least(0.01));
  app.add_flag("!--no-peers", options.peers, "Cohort alone");
  app.add_option("--data", options.data,
                 "Folder of Fashion-MNIST's four files (Debian's dataset-fashion-mnist)");
}

std::vector<Load> loads_of(const Options& options) {
  std::vector<Load> loads = {Load{}};
  for (const std::string& text : options.loads) {
    const Load load = parse_load(text);
    if (!load.quiet()) loads.push_back(load);
  }
  return loads;
}

// step_bench has the contenders in C++; the peers are its peers.
std::vector<ContenderSpec> chosen(const Options& options, Places places) {
  places.program = (fs::path(places.program).parent_path() / "step_bench").string();
  std::vector<ContenderSpec> all = roster(places, options.peers);
  std::erase_if(all, [&](const ContenderSpec& spec) {
    return std::find(options.only.begin(), options.only.end(), spec.name) == options.only.end();
  });
  return all;
}

int run(Options options) {
  options.run.loads = loads_of(options);
  // Nobody is told how many threads to have, or how they are to wait.
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME",
                           "GOMP_SPINCOUNT"}) {
    unsetenv(name);
  }
  setenv("COHORT_BENCH_THREADS", "default", 1);
  const Places places = default_places();
  options.run.cores = static_cast<int>(usable_cores().size());
  options.run.images = read_fashion_mnist(options.data);
  const fs::path folder = fs::path(places.program).parent_path();
  options.run.logs = (folder / "contention_bench_logs").string();
  fs::create_directories(options.run.logs);
  const ScratchFolder scratch("contention_bench");
  options.run.scratch = scratch.path();
  const std::vector<ContenderSpec> contenders = chosen(options, places);

  std::string lines;
  for (const std::string& text : options.cases) {
    std::fprintf(stderr, "contention_bench: %s\n", text.c_str());
    const ContentionResult result = text == "demo"
                                        ? run_demo(places, options.peers, options.run)
                                        : run_contention(parse_case(text), contenders, options.run);
    std::cout << contention_table(result, options.run) << std::flush;
    lines += contention_lines(result, options.run);
    for (const ContentionEntry& entry : result.entries) {
      if (entry.status == "mismatch") return 3;
    }
  }
  std::cout << "\n" << lines;
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  return examples::run_cli<Options>(
      argc, argv, "Measures a training step beside busy processes and under quotas.", declare, run);
}
