// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers beside those of others, in turns: a coordinator's empty functions, pushes and
// pulls by a worker, and a recommender's steps, in a job of a chief, two workers and two servers,
// beside TensorFlow's ParameterServerStrategy; pushes and pulls beside a server over PyTorch's RPC
// and beside plain stores over bare gRPC and bare sockets, too.
//
//   ps_peers_bench [--quick] [--cases schedule,recommender] [--no-peers]
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "places.h"
#include "process.h"
#include "ps_contender.h"
#include "ps_grpc.h"
#include "ps_limits.h"
#include "ps_recommender.h"
#include "ways.h"

namespace cohort::bench {
namespace {

constexpr std::chrono::seconds kStart{120};
constexpr std::chrono::seconds kAnswer{60};
// Steps ahead of the losses that are compared, and how far those may be apart: who pushes first
// differs from run to run.
constexpr int kLossSteps = 400;
constexpr double kFirstLosses = 1e-4;
constexpr double kLastLosses = 0.05;
constexpr std::uint64_t kBytes = 4 << 20;

/// The jobs that are under way, from the first case that needs each to the end.
class Contenders {
 public:
  explicit Contenders(bool peers) : peers_(peers) { write_impressions(impressions()); }

  std::string impressions() const { return folder_.path() + "/impressions"; }

  /// Null, and why, where a peer is not there.
  std::shared_ptr<ContenderProcess> job(const std::string& name, std::string& failure) {
    auto& process = jobs_[name];
    if (process) return process;
    const auto& [environment, script] = kScripts.at(name);
    std::vector<std::string> command = {places_.program, "--parameter-job"};
    std::vector<std::string> variables = {"COHORT_BENCH_IMPRESSIONS=" + impressions(),
                                          "OMP_NUM_THREADS=1"};
    if (!environment.empty()) {
      failure = missing_environment(places_, environment);
      if (!failure.empty()) return nullptr;
      command = peer_command(places_, environment, script);
      variables = peer_variables(places_);
    }
    try {
      auto made = std::make_shared<ContenderProcess>(command, variables, name + "_ps.log");
      made->receive(kStart);
      process = std::move(made);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    return process;
  }

  bool with_peers() const { return peers_; }

 private:
  struct Script {
    std::string environment, file;
  };
  const std::map<std::string, Script> kScripts = {{"cohort", {}},
                                                  {"tensorflow", {"xla", "tensorflow_ps_peer.py"}},
                                                  {"torch_rpc", {"torch", "torch_rpc_peer.py"}}};
  const bool peers_;
  const Places places_ = default_places();
  const ScratchFolder folder_{"ps_peers_bench"};
  std::map<std::string, std::shared_ptr<ContenderProcess>> jobs_;
};

double numbers(ContenderProcess& job, const std::string& line, double& second) {
  job.send(line);
  std::istringstream words(job.receive(kAnswer));
  double first = 0;
  words >> first >> second;
  return first;
}

Way way_of(Contenders& all, const std::string& name, const std::string& command) {
  Way way = {name, {}, 0, {}};
  const auto job = all.job(name, way.failure);
  if (!job) return way;
  way.process_group = job->process_group();
  way.time = [job, command](std::int64_t steps) {
    double counted = 0;
    const double nanoseconds = numbers(*job, str_cat(command, " ", steps), counted);
    const double off = std::abs(counted / static_cast<double>(steps) - 1);
    COHORT_CHECK_STATE(off < 1e-3, "it did ", counted, " of ", steps);
    return nanoseconds / 1e3 / static_cast<double>(steps);
  };
  return way;
}

struct Losses {
  double before = 0, after = 0;
};

Losses trained(Contenders& all, Way& way) {
  Losses out;
  if (!way.failure.empty()) return out;
  const auto job = all.job(way.name, way.failure);
  try {
    double none = 0;
    job->send("load " + all.impressions());
    job->receive(kStart);
    out.before = numbers(*job, "loss", none);
    numbers(*job, str_cat("train ", kLossSteps), none);
    out.after = numbers(*job, "loss", none);
    std::printf("%s: loss %.5f, after %d steps %.5f\n", way.name.c_str(), out.before, kLossSteps,
                out.after);
  } catch (const std::exception& error) {
    way.failure = error.what();
  }
  return out;
}

// Both learn the same, as far as steps that overtake each other let them.
std::vector<Way> recommender_ways(Contenders& all) {
  std::vector<Way> ways = {way_of(all, "cohort", "train")};
  const Losses ours = trained(all, ways[0]);
  if (!all.with_peers()) return ways;
  ways.push_back(way_of(all, "tensorflow", "train"));
  const Losses theirs = trained(all, ways[1]);
  const bool same = std::abs(theirs.before / ours.before - 1) < kFirstLosses &&
                    std::abs(theirs.after / ours.after - 1) < kLastLosses;
  if (ways[1].failure.empty() && !same) {
    ways[1].failure = str_cat("mismatch: loss ", theirs.before, " and then ", theirs.after,
                              ", ours ", ours.before, " and ", ours.after);
  }
  return ways;
}

std::vector<Way> moving_ways(Contenders& all, const std::string& command) {
  std::vector<Way> ways = {way_of(all, "cohort", command)};
  if (command == "push" || command == "pull") {
    const bool is_push = command == "push";
    ways.push_back(grpc_way(is_push));
    ways.push_back(
        sockets_way({.brings = is_push ? kBytes : 0U, .wants = is_push ? 1U : kBytes}, {}));
  }
  if (!all.with_peers()) return ways;
  ways.push_back(way_of(all, "tensorflow", command));
  ways.push_back(way_of(all, "torch_rpc", command));
  return ways;
}

std::vector<WaysCase> cases_of(const std::shared_ptr<Contenders>& all) {
  const auto moving = [all](const char* command) {
    return [all, command] { return moving_ways(*all, command); };
  };
  return {
      {"schedule",
       {{"functions", 1}},
       [all] {
         std::vector<Way> ways = {way_of(*all, "cohort", "schedule")};
         if (all->with_peers()) ways.push_back(way_of(*all, "tensorflow", "schedule"));
         return ways;
       }},
      {"push", {{"bytes", kBytes}}, moving("push")},
      {"pull", {{"bytes", kBytes}}, moving("pull")},
      {"push_rows", {{"rows", kIds}, {"width", kWidth}}, moving("push_rows")},
      {"pull_rows", {{"rows", kIds}, {"width", kWidth}}, moving("pull_rows")},
      {"recommender", {{"samples", kRecommenderBatch}}, [all] { return recommender_ways(*all); }}};
}

// us=... functions_per_s=... (bytes, rows, samples) vs_tensorflow=...
std::string columns(const WaysCase& which, const std::vector<WayResult>& results,
                    const WaysSummary& summary) {
  const auto& [what, count] = which.facts[0];
  return str_cat(what, "_per_s=", static_cast<double>(count) / summary.us[0].p50 * 1e6, " ",
                 columns_beside_others(which, results, summary));
}

int run(int argc, char** argv) {
  bool peers = true;
  return ways_main(
      argc, argv,
      {"ps_peers_bench", "Times parameter servers beside those of TensorFlow and PyTorch.",
       [&peers](CLI::App& app) {
         app.add_flag_callback(
             "--no-peers", [&peers] { peers = false; }, "No Python peers");
       },
       [&peers](const std::vector<int>&) { return cases_of(std::make_shared<Contenders>(peers)); },
       columns});
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--parameter-job") return serve_parameter_job();
  if (first == "--serve-grpc") return serve_grpc();
  if (first == "--serve-bytes") return serve_bytes();
  return run(argc, argv);
}
