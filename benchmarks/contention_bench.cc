// SPDX-License-Identifier: Apache-2.0
//
// Measures a training step, and the README's program, of Cohort, JAX, TensorFlow, Keras and PyTorch
// at their default threads: alone, beside busy processes, and under a cgroup's quota of CPU time.
// docs/benchmarks.md says how and why.
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "cohort/base/check.h"
#include "contention.h"
#include "demo_runs.h"
#include "machine.h"
#include "places.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage = R"(usage: contention_bench [options]
  --cases LIST    demo, or model:batch:replicas (models: tiny, mlp, large, cnn), with commas
  --loads LIST    quiet, busy:N, quota:CORES, with commas; quiet is always among them
  --rounds N      times that each contender is sampled under each load (3)
  --seconds S     of a sample on a quiet machine (0.25)
  --no-peers      Cohort alone
  --only LIST     only these contenders (cohort, jax_jit, tf_function, ... as in step_bench)
  --data FOLDER   Fashion-MNIST's four files (Debian's dataset-fashion-mnist)
)";

struct Options {
  std::string cases = "demo,tiny:16:1,tiny:16:2,mlp:32:1,mlp:32:2,mlp:256:1,large:64:1";
  std::string loads = "quiet,busy:1,busy:2,busy:4,quota:1.5,quota:0.5";
  std::string only =
      "cohort,jax_jit,jax_spmd,keras_fit,tf_function,tf_function_xla,tf_mirrored,torch_fused,"
      "torch_ddp";
  std::string data = default_data_folder();
  bool peers = true;
  ContentionOptions run;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

double positive(const std::string& option, const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  COHORT_CHECK_ARG(value > 0, "[contention_bench] expected ", option, " > 0, got ", text);
  return value;
}

void set_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "--cases") {
    options.cases = value;
  } else if (name == "--loads") {
    options.loads = value;
  } else if (name == "--only") {
    options.only = value;
  } else if (name == "--data") {
    options.data = value;
  } else if (name == "--rounds") {
    options.run.rounds = std::max(1, static_cast<int>(positive(name, value)));
  } else if (name == "--seconds") {
    options.run.seconds = positive(name, value);
  } else {
    throw InvalidArgument("[contention_bench] unknown option " + name);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-peers") {
      options.peers = false;
      continue;
    }
    COHORT_CHECK_ARG(i + 1 < argc, "[contention_bench] expected a value after ", name);
    set_option(options, name, argv[++i]);
  }
  options.run.loads = {Load{}};
  for (const std::string& text : split(options.loads)) {
    const Load load = parse_load(text);
    if (!load.quiet()) options.run.loads.push_back(load);
  }
  return options;
}

// step_bench has the contenders in C++; the peers are its peers.
std::vector<ContenderSpec> chosen(const Options& options, Places places) {
  places.program = (fs::path(places.program).parent_path() / "step_bench").string();
  std::vector<ContenderSpec> all = roster(places, options.peers);
  const std::vector<std::string> only = split(options.only);
  std::erase_if(all, [&](const ContenderSpec& spec) {
    return std::find(only.begin(), only.end(), spec.name) == only.end();
  });
  return all;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::cout << kUsage;
    return 0;
  }
  Options options = parse(argc, argv);
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
  for (const std::string& text : split(options.cases)) {
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
  try {
    return cohort::bench::run(argc, argv);
  } catch (const cohort::InvalidArgument& error) {
    std::cerr << error.what() << '\n' << cohort::bench::kUsage;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
