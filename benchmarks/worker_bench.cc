// SPDX-License-Identifier: Apache-2.0
//
// Measures what processes of one machine do together: all-reduces from 1 KB to 256 MB, beside Open
// MPI, Gloo (as PyTorch has it) and two bare processes that read and write each byte once.
// docs/benchmarks.md says how samples are taken.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cohort/base/check.h"
#include "places.h"
#include "process.h"
#include "ways.h"
#include "worker_contender.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kPatience{120};

struct WorkerOptions {
  bool peers = true;
};

/// Everybody's processes for one number of ranks.
class Ranks {
 public:
  Ranks(int ranks, const WorkerOptions& options) : ranks_(ranks), scratch_("worker_bench") {
    logs_ = fs::path(places_.program).parent_path() / "worker_bench_logs";
    fs::create_directories(logs_);
    const std::string count = std::to_string(ranks);
    start("cohort", {places_.program, "--ranks", count});
    start("cohort_tcp", {places_.program, "--ranks", count, "--tcp"});
    if (!options.peers) return;
#ifdef COHORT_BENCH_MPIEXEC
    start("openmpi",
          {COHORT_BENCH_MPIEXEC, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
           "-np", count, fs::path(places_.program).parent_path() / "mpi_contender"});
#else
    std::cerr << "[worker_bench] Open MPI is left out: it was not found when this was built\n";
#endif
    const std::string missing = missing_environment(places_, "torch");
    if (!missing.empty()) {
      std::cerr << "[worker_bench] Gloo is left out: " << missing << '\n';
      return;
    }
    std::vector<std::string> gloo = peer_command(places_, "torch", "torch_gloo_peer.py");
    gloo.insert(gloo.end(), {count, scratch_.path() + "/store"});
    start("torch_gloo", gloo);
  }

  std::vector<Way> ways(std::int64_t bytes) {
    std::vector<Way> ways;
    for (const auto& [name, process] : processes_) {
      const auto time = [&process = *process, bytes](std::int64_t steps) {
        process.send(str_cat("run ", bytes, " ", steps));
        return std::stod(process.receive(kPatience)) / 1e3 / static_cast<double>(steps);
      };
      ways.push_back({name, time, process->process_group()});
    }
    if (ranks_ != 2) return ways;
    const auto limit = std::make_shared<SharedReduceLimit>(bytes);
    ways.push_back({"limit", [limit](std::int64_t steps) { return limit->us(steps); }});
    return ways;
  }

 private:
  void start(const std::string& name, const std::vector<std::string>& command) {
    auto process = std::make_unique<ContenderProcess>(command, peer_variables(places_),
                                                      logs_ / (name + ".log"));
    process->receive(kPatience);
    processes_.emplace_back(name, std::move(process));
  }

  const Places places_ = default_places();
  const int ranks_;
  const ScratchFolder scratch_;
  fs::path logs_;
  std::vector<std::pair<std::string, std::unique_ptr<ContenderProcess>>> processes_;
};

std::vector<WaysCase> worker_cases(const WorkerOptions& options) {
  // One number of ranks at a time, for everybody's processes wait between their turns.
  const auto here = std::make_shared<std::pair<int, std::unique_ptr<Ranks>>>();
  const auto make = [=](int ranks, std::int64_t bytes) {
    if (here->first != ranks) {
      here->second.reset();
      here->second = std::make_unique<Ranks>(ranks, options);
      here->first = ranks;
    }
    return here->second->ways(bytes);
  };
  std::vector<WaysCase> cases;
  for (const int ranks : {2, 4}) {
    for (const std::int64_t kilobytes : {1, 16, 256, 1 << 10, 4 << 10, 32 << 10, 256 << 10}) {
      if (ranks == 4 && kilobytes > (32 << 10)) continue;
      const std::int64_t bytes = kilobytes << 10;
      cases.push_back(
          {"all_reduce", {{"ranks", ranks}, {"bytes", bytes}}, [=] { return make(ranks, bytes); }});
    }
  }
  return cases;
}

// us=... gb_per_s=... of_limit=... vs_<peer>=...
std::string columns(const WaysCase& c, const std::vector<WayResult>& results,
                    const WaysSummary& summary) {
  double of_limit = std::nan("");
  std::string others;
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].name == "limit") {
      of_limit = summary.ratio[i].p50;
    } else {
      others += str_cat(" vs_", results[i].name, "=", number(summary.ratio[i].p50, "%.2f"));
    }
  }
  const auto bytes = static_cast<double>(c.facts.back().second);
  const double us = summary.us[0].p50;
  return str_cat("us=", number(us, "%.2f"), " gb_per_s=", number(bytes / us / 1e3, "%.2f"),
                 " of_limit=", number(of_limit, "%.3f"), others);
}

int run(int argc, char** argv) {
  WorkerOptions options;
  int ranks = 0;
  bool tcp = false;
  const auto declare = [&](CLI::App& app) {
    app.add_flag("!--no-peers", options.peers, "Only Cohort and the limit");
    app.add_flag("--tcp", tcp, "With --ranks: over TCP");
    app.add_option("--ranks", ranks, "Be Cohort's side with so many ranks, on a pipe");
  };
  const auto cases = [&](const std::vector<int>&) {
    if (ranks > 0) std::exit(serve_ranks(ranks, !tcp));
    return worker_cases(options);
  };
  return ways_main(argc, argv,
                   {.name = "worker_bench",
                    .purpose = "Measures what processes of one machine do together.",
                    .declare = declare,
                    .cases = cases,
                    .columns = columns});
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::run(argc, argv); }
