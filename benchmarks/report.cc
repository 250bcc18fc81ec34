// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

using Json = nlohmann::json;

const Entry* find(const CaseResult& result, const std::string& name) {
  for (const Entry& entry : result.entries) {
    if (entry.spec.name == name && !entry.samples.empty()) return &entry;
  }
  return nullptr;
}

Json to_json(const Entry& entry, const Summary& summary) {
  Json out = {{"name", entry.spec.name},        {"family", family_name(entry.spec.family)},
              {"status", entry.status},         {"reason", entry.reason},
              {"versions", entry.versions},     {"loss", entry.loss},
              {"loss_error", entry.loss_error}, {"divergence", entry.divergence},
              {"samples", Json::array()}};
  for (const Sample& sample : entry.samples) out["samples"].push_back(to_json(sample));
  out["us_by_state"] = states_to_json(entry.samples);
  const auto us = summary.us.find(entry.spec.name);
  if (us != summary.us.end()) out["us"] = to_json(us->second);
  const auto ratio = summary.ratio.find(entry.spec.name);
  if (ratio != summary.ratio.end()) out["ratio"] = to_json(ratio->second);
  return out;
}

Json to_json(const CaseResult& result, const Summary& summary) {
  const Case& c = result.benchmark_case;
  Json out = {{"model", c.model},
              {"batch", c.batch},
              {"replicas", c.replicas},
              {"limit",
               {{"us", result.limit.us()},
                {"flops", result.limit.flops},
                {"fma_gflops", result.limit.fma_gflops},
                {"update_bytes", result.limit.update_bytes},
                {"copy_gbytes_per_thread", result.limit.copy_gbytes}}},
              {"state", summary.state ? state_name(*summary.state) : "na"},
              {"of_limit", to_json(summary.of_limit)},
              {"contenders", Json::array()}};
  for (const Entry& entry : result.entries) out["contenders"].push_back(to_json(entry, summary));
  return out;
}

}  // namespace

Summary summarise(const CaseResult& result, const std::string& subject) {
  Summary summary{result.benchmark_case, result.limit.us(), {}, {}, {}, {}, {}};
  const Entry* ours = find(result, subject);
  if (ours) summary.state = headline(ours->samples);
  const State state = summary.state.value_or(State::kDegraded);
  for (const Entry& entry : result.entries) {
    if (entry.samples.empty()) continue;
    const std::string& name = entry.spec.name;
    summary.us[name] = spread(times_in(entry.samples, state));
    if (ours) summary.ratio[name] = spread(paired_ratios(entry.samples, ours->samples, state));
    std::string& best = summary.best[entry.spec.family];
    if (best.empty() || summary.us[name].p50 < summary.us[best].p50) best = name;
  }
  if (ours) {
    std::vector<double> shares;
    for (double us : times_in(ours->samples, state)) shares.push_back(summary.limit_us / us);
    summary.of_limit = spread(shares);
  }
  return summary;
}

std::string table(const CaseResult& result, const Summary& summary, const std::string& subject) {
  const Limit& limit = result.limit;
  char line[256];
  std::snprintf(line, sizeof line,
                "\n%s  limit %.0f us = %.1f Mflop at %.0f Gflop/s + %.2f MB at %.0f GB/s (per "
                "thread)\n",
                result.benchmark_case.name().c_str(), limit.us(), limit.flops / 1e6,
                limit.fma_gflops, limit.update_bytes / 1e6, limit.copy_gbytes);
  std::string out = line;
  const std::string ratio_title = "/ " + subject + " [p10 - p90]";
  std::snprintf(line, sizeof line, "  %-16s %-26s %-8s %-26s %-9s %s\n", "contender",
                "us/step [p10 - p90]", "of limit", ratio_title.c_str(), "loss err", "states");
  out += line;
  for (const Entry& entry : result.entries) {
    const std::string& name = entry.spec.name;
    if (entry.samples.empty()) {
      std::snprintf(line, sizeof line, "  %-16s %s: %s\n", name.c_str(),
                    ("state=" + entry.status).c_str(), entry.reason.c_str());
      out += line;
      continue;
    }
    const Spread us = summary.us.at(name);
    const auto ratio = summary.ratio.find(name);
    std::snprintf(line, sizeof line, "  %-16s %-26s %-8s %-26s %-9s %s\n", name.c_str(),
                  range(us, "%.0f").c_str(), number(limit.us() / us.p50, "%.2f").c_str(),
                  ratio == summary.ratio.end() ? "na" : range(ratio->second, "%.2f").c_str(),
                  number(entry.loss_error, "%.0e").c_str(), state_counts(entry.samples).c_str());
    out += line;
  }
  return out;
}

std::string summary_line(const Summary& summary, const std::string& subject) {
  const auto versus = [&](Family family) {
    const auto best = summary.best.find(family);
    if (best == summary.best.end() || !summary.ratio.count(best->second)) return std::string("na");
    return number(summary.ratio.at(best->second).p50, "%.2f");
  };
  const auto ours = summary.us.find(subject);
  std::string part;  // the case against a part of it
  if (summary.best.count(Family::kCohortPart)) {
    part = (summary.benchmark_case.replicas > 1 ? " efficiency=" : " vs_step=") +
           versus(Family::kCohortPart);
  }
  const Case& c = summary.benchmark_case;
  return str_cat("step_bench: model=", c.model, " replicas=", c.replicas, " batch=", c.batch,
                 " us=", ours == summary.us.end() ? "na" : number(ours->second.p50, "%.1f"),
                 " limit_us=", number(summary.limit_us, "%.1f"),
                 " of_limit=", number(summary.of_limit.p50, "%.3f"),
                 " vs_libtorch=", versus(Family::kLibtorch), " vs_jax=", versus(Family::kJax),
                 " vs_keras=", versus(Family::kKeras), " vs_torch=", versus(Family::kTorch),
                 " state=", summary.state ? state_name(*summary.state) : "na", part);
}

void write_json(const std::string& path, const RunFacts& facts,
                const std::vector<CaseResult>& results, const std::vector<Summary>& summaries) {
  Json out = to_json(facts);
  out["cases"] = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    out["cases"].push_back(to_json(results[i], summaries[i]));
  }
  std::ofstream file(path);
  file << out.dump(1) << '\n';
  COHORT_CHECK_STATE(file, "[step_bench] cannot write ", path);
}

}  // namespace cohort::bench
