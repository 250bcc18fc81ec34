// SPDX-License-Identifier: Apache-2.0
#include "ways.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_main.h"
#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

using Json = nlohmann::json;

struct Options {
  std::vector<std::string> cases;
  int rounds = 12;
  double seconds = 0.1;
  std::string json;
};

void declare_flags(CLI::App& app, Options& options, const WaysProgram& program) {
  // First: the flags after it may say otherwise.
  app.add_flag_callback(
      "--quick",
      [&options] {
        options.rounds = 3;
        options.seconds = 0.02;
      },
      "Few rounds of short samples: a look, not a measurement");
  app.add_option("--cases", options.cases, "Only these cases, by name, with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--rounds", options.rounds, "Times that each way is sampled in a case")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "Of a sample")->check(CLI::Range(0.001, 2.0));
  app.add_option("--json", options.json, "Where every sample goes");
  if (program.declare) program.declare(app);
}

double guarded(const Way& way, WayResult& result, std::int64_t steps) {
  try {
    return way.time(steps);
  } catch (const std::exception& error) {
    result.failure = error.what();
    return 0;
  }
}

// A way that throws is out for the rest of the case.
void calibrate(const Way& way, WayResult& result, double seconds) {
  try {
    result.steps = steps_for(way.time, seconds);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
}

Sample take(const Way& way, WayResult& result, int round, const Probe& before,
            const std::vector<int>& cores) {
  Sample sample;
  sample.round = round;
  sample.steps = result.steps;
  sample.before = before;
  std::vector<int> groups = {getpgrp()};
  if (way.process_group != 0) groups.push_back(way.process_group);
  const CpuTime cpu_before = cpu_time(groups);
  const auto start = std::chrono::steady_clock::now();
  sample.us = guarded(way, result, result.steps);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const CpuTime cpu_after = cpu_time(groups);
  const double others =
      (cpu_after.machine - cpu_before.machine) - (cpu_after.groups - cpu_before.groups);
  sample.other_load = std::max(0.0, others / wall.count() / sysconf(_SC_NPROCESSORS_ONLN));
  sample.after = probe(cores);
  sample.state = classify(sample.before, sample.after, sample.other_load);
  return sample;
}

std::vector<WayResult> measure(const WaysCase& c, const Options& options,
                               const std::vector<int>& cores) {
  const std::vector<Way> ways = c.make();
  std::vector<WayResult> results;
  for (const Way& way : ways) {
    results.push_back({way.name, way.failure, way.process_group, 1, {}});
    calibrate(way, results.back(), options.seconds);
  }
  Probe before = probe(cores);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      // Everyone comes first as often as anyone else.
      const std::size_t turn = (i + static_cast<std::size_t>(round)) % ways.size();
      WayResult& result = results[turn];
      if (!result.failure.empty()) continue;
      const Sample sample = take(ways[turn], result, round, before, cores);
      before = sample.after;
      if (result.failure.empty()) result.samples.push_back(sample);
    }
  }
  return results;
}

WaysSummary summarise(const std::vector<WayResult>& results) {
  WaysSummary summary;
  const std::vector<Sample>& ours = results[0].samples;
  summary.state = headline(ours).value_or(State::kDegraded);
  for (const WayResult& result : results) {
    summary.us.push_back(spread(times_in(result.samples, summary.state)));
    summary.ratio.push_back(spread(paired_ratios(result.samples, ours, summary.state)));
  }
  return summary;
}

std::string title(const WaysCase& c) {
  std::string text = c.name;
  for (const auto& [name, value] : c.facts) text += str_cat(" ", name, "=", value);
  return text;
}

std::string table(const WaysCase& c, const std::vector<WayResult>& results,
                  const WaysSummary& summary) {
  std::string out = "\n" + title(c) + "\n";
  char line[256];
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].failure.empty()) {
      out += str_cat("  ", results[i].name, " state=failed: ", results[i].failure, "\n");
      continue;
    }
    std::snprintf(line, sizeof line, "  %-28s us %-34s / %s %-22s %s\n", results[i].name.c_str(),
                  range(summary.us[i], "%.2f").c_str(), results[0].name.c_str(),
                  range(summary.ratio[i], "%.2f").c_str(),
                  state_counts(results[i].samples).c_str());
    out += line;
  }
  return out;
}

Json to_json(const WaysCase& c, const std::vector<WayResult>& results, const WaysSummary& summary) {
  Json out = {{"case", c.name}, {"state", state_name(summary.state)}, {"ways", Json::array()}};
  for (const auto& [name, value] : c.facts) out[name] = value;
  for (std::size_t i = 0; i < results.size(); ++i) {
    Json way = {{"name", results[i].name},
                {"us", bench::to_json(summary.us[i])},
                {"ratio", bench::to_json(summary.ratio[i])},
                {"us_by_state", states_to_json(results[i].samples)},
                {"samples", Json::array()}};
    if (!results[i].failure.empty()) way["failure"] = results[i].failure;
    for (const Sample& sample : results[i].samples) {
      way["samples"].push_back(bench::to_json(sample));
    }
    out["ways"].push_back(std::move(way));
  }
  return out;
}

bool wanted(const Options& options, const WaysCase& c) {
  return options.cases.empty() ||
         std::find(options.cases.begin(), options.cases.end(), c.name) != options.cases.end();
}

// Returns 3 if a way failed: what the lines compare is then not all that they should.
int run(const Options& options, const WaysProgram& program) {
  const std::vector<int> cores = usable_cores();
  Json json = bench::to_json(facts_of_run(options.rounds, options.seconds));
  json["cases"] = Json::array();
  std::string lines;
  bool failed = false;
  for (const WaysCase& c : program.cases(cores)) {
    if (!wanted(options, c)) continue;
    const std::vector<WayResult> results = measure(c, options, cores);
    const WaysSummary summary = summarise(results);
    std::cout << table(c, results, summary) << std::flush;
    lines += str_cat(program.name, ": case=", title(c), " ", program.columns(c, results, summary),
                     " state=", state_name(summary.state), "\n");
    json["cases"].push_back(to_json(c, results, summary));
    for (const WayResult& result : results) failed |= !result.failure.empty();
  }
  COHORT_CHECK_ARG(!lines.empty(), "[", program.name, "] expected at least 1 case, got none");
  std::ofstream file(options.json);
  file << json.dump(1) << '\n';
  COHORT_CHECK_STATE(file, "[", program.name, "] cannot write ", options.json);
  std::cout << "\nsamples: " << options.json << '\n' << lines;
  return failed ? 3 : 0;
}

}  // namespace

std::string columns_beside_others(const WaysCase& /*c*/, const std::vector<WayResult>& results,
                                  const WaysSummary& summary) {
  std::string out = str_cat("us=", number(summary.us[0].p50, "%.1f"));
  for (std::size_t i = 1; i < results.size(); ++i) {
    out += str_cat(" vs_", results[i].name, "=", number(summary.ratio[i].p50, "%.2f"));
  }
  return out;
}

int ways_main(int argc, char** argv, const WaysProgram& program) {
  const auto declare = [&](CLI::App& app, Options& options) {
    const std::string path = argv[0];
    options.json = path.substr(0, path.rfind('/') + 1) + program.name + ".json";
    declare_flags(app, options, program);
  };
  return examples::run_cli<Options>(argc, argv, program.purpose, declare,
                                    [&](const Options& options) { return run(options, program); });
}

}  // namespace cohort::bench
