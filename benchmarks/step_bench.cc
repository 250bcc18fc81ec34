// SPDX-License-Identifier: Apache-2.0
//
// Measures a training step of Cohort beside plain LibTorch, JAX, TensorFlow, Keras and PyTorch, and
// against what the machine could do at most. docs/benchmarks.md says how and why.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cohort/base/check.h"
#include "contender.h"
#include "machine.h"
#include "report.h"
#include "roster.h"
#include "runner.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage = R"(usage: step_bench [options]
  --cases LIST     model:batch:replicas,...  (models: mlp, mlp_fit, cnn)
  --rounds N       times that each contender is sampled in a case (12)
  --seconds S      of a sample, at most 2 (0.5)
  --quick          few rounds of short samples: a look, not a measurement
  --no-peers       only the contenders in C++
  --only LIST      only these contenders
  --subject NAME   the contender that the others are compared with (cohort)
  --json PATH      where every sample goes (step_bench.json beside the program)
  --data FOLDER    Fashion-MNIST's four files (Debian's dataset-fashion-mnist)
  --contender NAME be this contender, on a pipe, with --replicas N
)";

struct Options {
  std::vector<Case> cases;
  RunOptions run;
  bool peers = true;
  std::vector<std::string> only;
  std::string subject;
  std::string json;
  std::string data = default_data_folder();
  std::string contender;
  int replicas = 1;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<Case> parse_cases(const std::string& text) {
  std::vector<Case> cases;
  for (const std::string& part : split(text)) cases.push_back(parse_case(part));
  return cases;
}

double parse_number(const std::string& option, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  COHORT_CHECK_ARG(end != text.c_str() && *end == '\0' && value >= least && value <= most,
                   "[step_bench] expected ", option, " from ", least, " to ", most, ", got ", text);
  return value;
}

// Options that take a value.
void set_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "--cases") {
    options.cases = parse_cases(value);
  } else if (name == "--rounds") {
    options.run.rounds = parse_number(name, value, 1, 1000);
  } else if (name == "--seconds") {
    options.run.seconds = parse_number(name, value, 0.01, 2);
  } else if (name == "--only") {
    options.only = split(value);
  } else if (name == "--subject") {
    options.subject = value;
  } else if (name == "--json") {
    options.json = value;
  } else if (name == "--data") {
    options.data = value;
  } else if (name == "--replicas") {
    options.replicas = parse_number(name, value, 1, 1024);
  } else if (name == "--contender") {
    options.contender = value;
  } else {
    throw InvalidArgument("[step_bench] unknown option " + name);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  options.cases = parse_cases("mlp:32:1,mlp:256:1,mlp:32:2,mlp:256:2,cnn:32:1,mlp_fit:32:1");
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      options.run.rounds = 3;
      options.run.seconds = 0.1;
      options.cases = parse_cases("mlp:32:1,mlp:32:2,cnn:32:1,mlp_fit:32:1");
    } else if (name == "--no-peers") {
      options.peers = false;
    } else {
      COHORT_CHECK_ARG(i + 1 < argc, "[step_bench] expected a value after ", name);
      set_option(options, name, argv[++i]);
    }
  }
  return options;
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

  std::vector<CaseResult> results;
  std::vector<Summary> summaries;
  {
    Runner runner(chosen(options, places), options.run);
    runner.start(options.cases);
    for (const Case& c : options.cases) {
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
  if (name == "cohort_fit") return {make_cohort_fit_contender(), version};
  if (name == "libtorch") return {make_libtorch_contender(), version};
  COHORT_CHECK_ARG(name == "libtorch_malloc", "[step_bench] unknown contender ", name);
  fix_allocator();
  return {make_libtorch_contender(), version};
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::cout << kUsage;
    return 0;
  }
  const Options options = parse(argc, argv);
  if (options.contender.empty()) return bench(options);
  confine_to_cores(options.replicas);
  NamedContender named = make_contender(options.contender);
  return serve(*named.contender, named.versions);
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
