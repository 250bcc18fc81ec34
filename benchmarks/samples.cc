// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "cohort/base/strings.h"

namespace cohort::bench {

using Json = nlohmann::json;

namespace {

Json to_json(const Probe& probe) {
  return {
      {"fma1_gflops", probe.fma1}, {"fma2_gflops", probe.fma2}, {"pingpong_ns", probe.pingpong_ns}};
}

std::string output_of(const std::string& command) {
  std::string text;
  if (std::FILE* pipe = popen(command.c_str(), "r")) {
    char chunk[256];
    while (std::fgets(chunk, sizeof chunk, pipe)) text += chunk;
    pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

std::optional<State> headline(const std::vector<Sample>& samples) {
  if (samples.empty()) return std::nullopt;
  std::map<State, std::size_t> seen;
  for (const Sample& sample : samples) ++seen[sample.state];
  const std::size_t enough = std::min<std::size_t>(10, (samples.size() + 1) / 2);
  for (State state : {State::kSameCcx, State::kCrossCcx}) {
    if (seen[state] >= enough) return state;
  }
  return std::max_element(seen.begin(), seen.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<double> times_in(const std::vector<Sample>& samples, State state) {
  std::vector<double> wanted, all;
  for (const Sample& sample : samples) {
    all.push_back(sample.us);
    if (sample.state == state) wanted.push_back(sample.us);
  }
  return wanted.empty() ? all : wanted;
}

std::vector<double> paired_ratios(const std::vector<Sample>& their_samples,
                                  const std::vector<Sample>& our_samples, State state) {
  constexpr std::size_t kEnough = 3;
  std::vector<double> wanted, alike, all;
  for (const Sample& theirs : their_samples) {
    for (const Sample& ours : our_samples) {
      if (ours.round != theirs.round) continue;
      all.push_back(theirs.us / ours.us);
      if (ours.state == theirs.state) alike.push_back(all.back());
      if (ours.state == state && theirs.state == state) wanted.push_back(all.back());
    }
  }
  if (wanted.size() >= kEnough) return wanted;
  return alike.size() >= kEnough ? alike : all;
}

std::string number(double value, const char* format) {
  if (std::isnan(value)) return "na";
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string range(const Spread& spread, const char* format) {
  if (!spread.known()) return "na";
  return number(spread.p50, format) + " [" + number(spread.p10, format) + " - " +
         number(spread.p90, format) + "]";
}

std::string state_counts(const std::vector<Sample>& samples) {
  std::map<std::string, int> counts;
  for (const Sample& sample : samples) ++counts[state_name(sample.state)];
  std::string text;
  for (const auto& [name, count] : counts)
    text += str_cat(text.empty() ? "" : " ", name, ":", count);
  return text;
}

Json to_json(const Spread& spread) {
  return {{"p10", spread.p10}, {"p50", spread.p50}, {"p90", spread.p90}};
}

Json to_json(const Sample& sample) {
  return {{"round", sample.round},
          {"steps", sample.steps},
          {"us", sample.us},
          {"before", to_json(sample.before)},
          {"after", to_json(sample.after)},
          {"other_load", sample.other_load},
          {"state", state_name(sample.state)}};
}

Json states_to_json(const std::vector<Sample>& samples) {
  std::map<std::string, std::vector<double>> by_state;
  for (const Sample& sample : samples) by_state[state_name(sample.state)].push_back(sample.us);
  Json out = Json::object();
  for (const auto& [name, times] : by_state) {
    out[name] = to_json(spread(times));
    out[name]["samples"] = times.size();
  }
  return out;
}

RunFacts facts_of_run(int rounds, double seconds) {
  RunFacts facts;
  facts.git = output_of("git -C '" + std::string(COHORT_BENCH_SOURCES) +
                        "' describe --always --dirty --abbrev=40 2>/dev/null");
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  facts.started = text;
  facts.processor = processor_name();
  facts.cores = usable_cores();
  facts.rounds = rounds;
  facts.seconds = seconds;
  return facts;
}

Json to_json(const RunFacts& facts) {
  return {{"git", facts.git},         {"started", facts.started}, {"rounds", facts.rounds},
          {"seconds", facts.seconds}, {"cores", facts.cores},     {"processor", facts.processor}};
}

}  // namespace cohort::bench
