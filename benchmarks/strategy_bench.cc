// SPDX-License-Identifier: Apache-2.0
//
// Measures what a strategy adds to the user's arithmetic: run and merge_call of nothing,
// all-reduces from 1 KB to 64 MB against two threads written by hand, packed against one by one,
// and the cross-device ops. docs/benchmarks.md says how samples are taken.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cohort/base/check.h"
#include "samples.h"
#include "strategy_cases.h"

namespace cohort::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kUsage = R"(usage: strategy_bench [options]
  --cases LIST   run,merge_call,all_reduce,... (all of them)
  --rounds N     times that each way is sampled in a case (12)
  --seconds S    of a sample (0.1)
  --quick        few rounds of short samples: a look, not a measurement
  --json PATH    where every sample goes (strategy_bench.json beside the program)
)";

struct Options {
  std::vector<std::string> cases;
  int rounds = 12;
  double seconds = 0.1;
  std::string json;
};

// What came of one way.
struct WayResult {
  std::string name;
  std::int64_t steps = 1;
  std::vector<Sample> samples;
};

double parse_number(const std::string& option, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  COHORT_CHECK_ARG(end != text.c_str() && *end == '\0' && value >= least && value <= most,
                   "[strategy_bench] expected ", option, " from ", least, " to ", most, ", got ",
                   text);
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      options.rounds = 3;
      options.seconds = 0.02;
      continue;
    }
    COHORT_CHECK_ARG(i + 1 < argc, "[strategy_bench] expected a value after ", name);
    const std::string value = argv[++i];
    if (name == "--cases") {
      std::istringstream in(value);
      for (std::string part; std::getline(in, part, ',');) options.cases.push_back(part);
    } else if (name == "--rounds") {
      options.rounds = static_cast<int>(parse_number(name, value, 1, 1000));
    } else if (name == "--seconds") {
      options.seconds = parse_number(name, value, 0.001, 2);
    } else if (name == "--json") {
      options.json = value;
    } else {
      throw InvalidArgument("[strategy_bench] unknown option " + name);
    }
  }
  return options;
}

// As many steps as take about so long; the work is warm afterwards.
std::int64_t calibrated(const Way& way, double seconds) {
  std::int64_t steps = 1;
  while (true) {
    const double us = way.time(steps);
    const double wanted = seconds * 1e6 / us;
    if (wanted < 2.0 * static_cast<double>(steps)) {
      return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
    }
    steps = std::min(static_cast<std::int64_t>(wanted), steps * 10);
  }
}

Sample take(const Way& way, std::int64_t steps, int round, const Probe& before,
            const std::vector<int>& cores) {
  Sample sample;
  sample.round = round;
  sample.steps = steps;
  sample.before = before;
  const std::vector<int> groups = {getpgrp()};
  const CpuTime cpu_before = cpu_time(groups);
  const auto start = std::chrono::steady_clock::now();
  sample.us = way.time(steps);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const CpuTime cpu_after = cpu_time(groups);
  const double others =
      (cpu_after.machine - cpu_before.machine) - (cpu_after.groups - cpu_before.groups);
  sample.other_load = std::max(0.0, others / wall.count() / sysconf(_SC_NPROCESSORS_ONLN));
  sample.after = probe(cores);
  sample.state = classify(sample.before, sample.after, sample.other_load);
  return sample;
}

std::vector<WayResult> measure(const StrategyCase& c, const Options& options,
                               const std::vector<int>& cores) {
  const std::vector<Way> ways = c.make();
  std::vector<WayResult> results;
  for (const Way& way : ways) {
    results.push_back({way.name, calibrated(way, options.seconds), {}});
  }
  Probe before = probe(cores);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      // Everyone comes first as often as anyone else.
      const std::size_t turn = (i + static_cast<std::size_t>(round)) % ways.size();
      WayResult& result = results[turn];
      result.samples.push_back(take(ways[turn], result.steps, round, before, cores));
      before = result.samples.back().after;
    }
  }
  return results;
}

struct Summary {
  State state = State::kDegraded;
  std::vector<Spread> us;
  std::vector<Spread> ratio;  // time of each way / time of the subject
  double limit_us = std::nan("");
  double of_limit = std::nan("");
};

Summary summarise(const std::vector<WayResult>& results) {
  Summary summary;
  const std::vector<Sample>& ours = results[0].samples;
  summary.state = headline(ours).value_or(State::kDegraded);
  for (const WayResult& result : results) {
    summary.us.push_back(spread(times_in(result.samples, summary.state)));
    summary.ratio.push_back(spread(paired_ratios(result.samples, ours, summary.state)));
    if (result.name != "limit") continue;
    summary.limit_us = summary.us.back().p50;
    summary.of_limit = summary.ratio.back().p50;
  }
  return summary;
}

std::string table(const StrategyCase& c, const std::vector<WayResult>& results,
                  const Summary& summary) {
  char line[256];
  std::snprintf(line, sizeof line, "\n%s replicas=%d bytes=%lld\n", c.name.c_str(), c.replicas,
                static_cast<long long>(c.bytes));
  std::string out = line;
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::snprintf(line, sizeof line, "  %-28s us %-34s / %s %-22s %s\n", results[i].name.c_str(),
                  range(summary.us[i], "%.2f").c_str(), results[0].name.c_str(),
                  range(summary.ratio[i], "%.2f").c_str(),
                  state_counts(results[i].samples).c_str());
    out += line;
  }
  return out;
}

std::string summary_line(const StrategyCase& c, const std::vector<WayResult>& results,
                         const Summary& summary) {
  std::string line = str_cat(
      "strategy_bench: case=", c.name, " replicas=", c.replicas, " bytes=", c.bytes,
      " us=", number(summary.us[0].p50, "%.2f"), " limit_us=", number(summary.limit_us, "%.2f"),
      " of_limit=", number(summary.of_limit, "%.3f"), " state=", state_name(summary.state));
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].name == "limit") continue;
    line += str_cat(" vs_", results[i].name, "=", number(summary.ratio[i].p50, "%.2f"));
  }
  return line;
}

Json to_json(const StrategyCase& c, const std::vector<WayResult>& results, const Summary& summary) {
  Json out = {{"case", c.name},
              {"replicas", c.replicas},
              {"bytes", c.bytes},
              {"state", state_name(summary.state)},
              {"ways", Json::array()}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    Json way = {{"name", results[i].name},
                {"us", bench::to_json(summary.us[i])},
                {"ratio", bench::to_json(summary.ratio[i])},
                {"us_by_state", states_to_json(results[i].samples)},
                {"samples", Json::array()}};
    for (const Sample& sample : results[i].samples) {
      way["samples"].push_back(bench::to_json(sample));
    }
    out["ways"].push_back(std::move(way));
  }
  return out;
}

bool wanted(const Options& options, const StrategyCase& c) {
  return options.cases.empty() ||
         std::find(options.cases.begin(), options.cases.end(), c.name) != options.cases.end();
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::cout << kUsage;
    return 0;
  }
  Options options = parse(argc, argv);
  const std::string program = argv[0];
  if (options.json.empty()) {
    options.json = program.substr(0, program.rfind('/') + 1) + "strategy_bench.json";
  }
  const std::vector<int> cores = usable_cores();
  Json json = bench::to_json(facts_of_run(options.rounds, options.seconds));
  json["cases"] = Json::array();
  std::string lines;
  for (const StrategyCase& c : strategy_cases(cores)) {
    if (!wanted(options, c)) continue;
    const std::vector<WayResult> results = measure(c, options, cores);
    const Summary summary = summarise(results);
    std::cout << table(c, results, summary) << std::flush;
    lines += summary_line(c, results, summary) + '\n';
    json["cases"].push_back(to_json(c, results, summary));
  }
  COHORT_CHECK_ARG(!lines.empty(), "[strategy_bench] expected at least 1 case, got none");
  std::ofstream file(options.json);
  file << json.dump(1) << '\n';
  COHORT_CHECK_STATE(file, "[strategy_bench] cannot write ", options.json);
  std::cout << "\nsamples: " << options.json << '\n' << lines;
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
