// SPDX-License-Identifier: Apache-2.0
//
// Measures a training step of Cohort beside plain LibTorch, JAX, TensorFlow, Keras and PyTorch, and
// against what the machine could do at most. docs/benchmarks.md says how and why.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "contender.h"
#include "lockstep_contender.h"
#include "machine.h"
#include "report.h"
#include "roster.h"
#include "runner.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> cases = {"tiny:16:1", "tiny:16:2", "mlp:32:1", "mlp:256:1",
                                    "mlp:32:2",  "mlp:256:2", "cnn:32:1", "mlp_fit:32:1"};
  RunOptions run;
  bool peers = true;
  std::vector<std::string> only;
  std::string subject;
  std::string json;
  std::string data = default_data_folder();
  std::string contender;
  int replicas = 1;
};

std::string complaint_about_case(const std::string& text) {
  try {
    parse_case(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void declare(CLI::App& app, Options& options) {
  // First: the flags after it may say otherwise.
  app.add_flag_callback(
      "--quick",
      [&options] {
        options.run.rounds = 3;
        options.run.seconds = 0.1;
        options.cases = {"mlp:32:1", "mlp:32:2", "cnn:32:1", "mlp_fit:32:1"};
      },
      "Few rounds of short samples: a look, not a measurement");
  app.add_option("--cases", options.cases,
                 "model:batch:replicas,... (models: mlp, mlp_fit, cnn, tiny, large)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(complaint_about_case, "");
  app.add_option("--rounds", options.run.rounds, "Times that each contender is sampled in a case")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.run.seconds, "Of a sample")->check(CLI::Range(0.01, 2.0));
  app.add_flag("!--no-peers", options.peers, "Only the contenders in C++");
  app.add_option("--only", options.only, "Only these contenders, with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--subject", options.subject,
                 "The contender that the others are compared with, instead of Cohort");
  app.add_option("--json", options.json, "Where every sample goes, instead of beside the program");
  app.add_option("--data", options.data,
                 "Folder of Fashion-MNIST's four files (Debian's dataset-fashion-mnist)");
  app.add_option("--contender", options.contender, "Be this contender, on a pipe");
  app.add_option("--replicas", options.replicas, "Of a contender")->check(CLI::Range(1, 1024));
}

std::vector<ContenderSpec> chosen(const Options& options, const Places& places) {
  std::vector<ContenderSpec> all = roster(places, options.peers);
  if (options.only.empty()) return all;
  std::erase_if(all, [&](const ContenderSpec& spec) {
    return std::find(options.only.begin(), options.only.end(), spec.name) == options.only.end();
  });
  return all;
}

std::string subject_of(const Options& options, const Case& c) {
  if (!options.subject.empty()) return options.subject;
  return c.model == "mlp_fit" ? "cohort_fit" : "cohort";
}

int bench(Options options) {
  const Places places = default_places();
  const RunFacts facts = facts_of_run(options.run.rounds, options.run.seconds);
  const std::string folder = fs::path(places.program).parent_path();
  if (options.json.empty()) options.json = folder + "/step_bench.json";
  options.run.images = read_fashion_mnist(options.data);
  options.run.logs = folder + "/step_bench_logs";
  fs::create_directories(options.run.logs);
  ScratchFolder scratch("step_bench");
  options.run.scratch = scratch.path();

  std::vector<Case> cases;
  for (const std::string& text : options.cases) cases.push_back(parse_case(text));
  std::vector<CaseResult> results;
  std::vector<Summary> summaries;
  {
    Runner runner(chosen(options, places), options.run);
    runner.start(cases);
    for (const Case& c : cases) {
      results.push_back(runner.run(c));
      summaries.push_back(summarise(results.back(), subject_of(options, c)));
      std::cout << table(results.back(), summaries.back(), subject_of(options, c)) << std::flush;
    }
  }
  write_json(options.json, facts, results, summaries);
  std::cout << "\nsamples: " << options.json << '\n';
  for (const Summary& summary : summaries) {
    std::cout << summary_line(summary, subject_of(options, summary.benchmark_case)) << '\n';
  }
  const auto wrong = [](const Entry& entry) { return entry.status == "mismatch"; };
  for (const CaseResult& result : results) {
    if (std::any_of(result.entries.begin(), result.entries.end(), wrong)) return 3;
  }
  return 0;
}

struct NamedContender {
  std::unique_ptr<Contender> contender;
  std::string versions;  // that it answers to
};

NamedContender make_contender(const std::string& name) {
  const std::string version = "libtorch " + libtorch_version();
  if (name == "cohort" || name == "cohort_step") return {make_cohort_contender(false), version};
  if (name == "cohort_alone") return {make_cohort_contender(true), version};
  if (name == "cohort_workers") return {make_cohort_workers_contender(), version};
  if (name == "cohort_fit") return {make_cohort_fit_contender(), version};
  if (name == "lockstep") return {make_lockstep_contender(), "threads that meet"};
  if (name == "libtorch") return {make_libtorch_contender(), version};
  COHORT_CHECK_ARG(name == "libtorch_malloc", "[step_bench] unknown contender ", name);
  fix_allocator();
  return {make_libtorch_contender(), version};
}

int run(const Options& options) {
  if (options.contender.empty()) return bench(options);
  confine_to_cores(options.replicas);
  NamedContender named = make_contender(options.contender);
  return serve(*named.contender, named.versions);
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  return examples::run_cli<Options>(argc, argv, "Measures a training step.", declare, run);
}
