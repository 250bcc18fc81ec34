// SPDX-License-Identifier: Apache-2.0
//
// Measures input pipelines beside tf.data and beside what bounds them. Everyone is a process behind
// a pipe, confined to one core, and reads the same files. docs/benchmarks.md says how samples
// are taken.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "cohort/base/check.h"
#include "data_contender.h"
#include "data_files.h"
#include "machine.h"
#include "places.h"
#include "process.h"
#include "ways.h"
#include "workload.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr seconds kStartLimit{120};
constexpr seconds kOpenLimit{120};  // a pass is read to compare its sum
constexpr seconds kRunLimit{60};

struct DataCase {
  std::string name;
  std::int64_t batch;
};

const std::vector<DataCase>& data_cases() {
  static const std::vector<DataCase> cases = {{"rows", 128},
                                              {"rows", 512},
                                              {"examples_image", 512},
                                              {"examples_floats", 512},
                                              {"examples_shuffled", 512},
                                              {"csv", 512},
                                              {"images", 16},
                                              {"interleave_records", 512},
                                              {"interleave_lines", 512}};
  return cases;
}

struct DataOptions {
  bool peers = true;
  std::string images = default_data_folder();
};

/// The processes, and the files that they read.
class Session {
 public:
  Session(const DataOptions& options, const std::vector<int>& cores)
      : options_(options), scratch_("data_bench") {
    const Places places = default_places();
    logs_ = fs::path(places.program).parent_path() / "data_bench_logs";
    fs::create_directories(logs_);
    const std::string variable = "COHORT_BENCH_CORES=" + joined(cores, ",");
    processes_.push_back(
        start("cohort", {places.program, "--contender"}, {variable, "OMP_NUM_THREADS=1"}));
    if (!options.peers) return;
    const std::string missing = missing_environment(places, "xla");
    if (!missing.empty()) {
      std::cerr << "[data_bench] tf.data is left out: " << missing << '\n';
      return;
    }
    std::vector<std::string> variables = peer_variables(places);
    variables.push_back(variable);
    processes_.push_back(
        start("tf_data", peer_command(places, "xla", "tf_data_peer.py"), variables));
  }

  /// Every way of every process that does the case, "cohort" first.
  std::vector<Way> open(const DataCase& c) {
    const std::string folder = scratch_.path() + "/" + c.name;
    if (fs::create_directories(folder)) write_data_files(c.name, options_.images, folder);
    case_ = c.name;
    std::vector<Way> ways;
    for (const auto& process : processes_) {
      process->send(str_cat("open ", c.name, " ", c.batch, " ", folder, " ", options_.images));
      std::istringstream names(process->receive(kOpenLimit));
      for (std::string name; names >> name;) ways.push_back(way(*process, name));
    }
    const auto ours = [](const Way& way) { return way.name == "cohort"; };
    std::rotate(ways.begin(), std::find_if(ways.begin(), ways.end(), ours), ways.end());
    prove_same_work(ways);
    return ways;
  }

 private:
  std::unique_ptr<ContenderProcess> start(const std::string& name,
                                          const std::vector<std::string>& command,
                                          const std::vector<std::string>& variables) {
    auto process = std::make_unique<ContenderProcess>(command, variables, logs_ / (name + ".log"));
    process->receive(kStartLimit);
    return process;
  }

  Way way(ContenderProcess& process, const std::string& name) {
    process.send("check " + name);
    std::istringstream in(process.receive(kOpenLimit));
    Pass pass;
    std::string sum;
    in >> pass.rows >> sum;
    pass.sum = std::strtod(sum.c_str(), nullptr);  // also nan
    passes_[name] = pass;
    const auto time = [&process, name](std::int64_t steps) {
      process.send(str_cat("run ", name, " ", steps));
      return std::stod(process.receive(kRunLimit)) / 1e3 / static_cast<double>(steps);
    };
    return {name, time, process.process_group()};
  }

  /// A way that reads other rows, or other values, does not count.
  void prove_same_work(std::vector<Way>& ways) const {
    // TensorFlow's default decoder is off by some levels of 256.
    const double tolerance = case_ == "images" ? 1e-2 : 1e-6;
    const Pass& ours = passes_.at("cohort");
    for (Way& way : ways) {
      const Pass& theirs = passes_.at(way.name);
      const double error = std::abs(theirs.sum - ours.sum) / std::abs(ours.sum);
      if (theirs.rows == ours.rows && !(error > tolerance)) continue;
      way.failure = str_cat("expected ", ours.rows, " rows with the sum ", ours.sum, ", got ",
                            theirs.rows, " with ", theirs.sum);
    }
  }

  using Pass = BatchSource::Pass;

  const DataOptions options_;
  const ScratchFolder scratch_;
  fs::path logs_;
  std::vector<std::unique_ptr<ContenderProcess>> processes_;
  // Of the case that was opened last:
  std::string case_;
  std::map<std::string, Pass> passes_;  ///< By way.
};

// rows_per_s=... of_<limit>=... vs_tf_data=<the best of tf_*> vs_<another way>=...
std::string columns(const WaysCase& c, const std::vector<WayResult>& results,
                    const WaysSummary& summary) {
  const auto batch = static_cast<double>(c.facts.front().second);
  double best = std::nan("");
  std::string others;
  for (std::size_t i = 1; i < results.size(); ++i) {
    const std::string& name = results[i].name;
    const double ratio = summary.ratio[i].p50;
    if (name.starts_with("tf_")) {
      best = std::fmin(best, ratio);
    } else if (name == "gather" || name == "crc32c" || name == "from_chars") {
      others = str_cat(" of_", name, "=", number(ratio, "%.3f"), others);
    } else {
      others += str_cat(" vs_", name, "=", number(ratio, "%.2f"));
    }
  }
  return str_cat("rows_per_s=", number(batch * 1e6 / summary.us[0].p50, "%.0f"),
                 " vs_tf_data=", number(best, "%.2f"), others);
}

std::vector<WaysCase> ways_cases(const std::shared_ptr<Session>& session) {
  std::vector<WaysCase> cases;
  for (const DataCase& c : data_cases()) {
    cases.push_back({c.name, {{"batch", c.batch}}, [session, c] { return session->open(c); }});
  }
  return cases;
}

int run(int argc, char** argv) {
  DataOptions options;
  const auto declare = [&](CLI::App& app) {
    app.add_flag("!--no-peers", options.peers, "Only Cohort and its limits");
    app.add_option("--data", options.images,
                   "Folder of Fashion-MNIST's four files (Debian's dataset-fashion-mnist)");
    const auto serve = [] {
      confine_to_cores(1);
      std::exit(serve_data());
    };
    app.add_flag_callback("--contender", serve, "Be Cohort's side, on a pipe");
  };
  const auto cases = [&](const std::vector<int>& cores) {
    return ways_cases(std::make_shared<Session>(options, cores));
  };
  return ways_main(argc, argv,
                   {.name = "data_bench",
                    .purpose = "Measures input pipelines beside tf.data.",
                    .declare = declare,
                    .cases = cases,
                    .columns = columns});
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::run(argc, argv); }
