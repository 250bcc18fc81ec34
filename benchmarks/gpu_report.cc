// SPDX-License-Identifier: Apache-2.0
#include "gpu_report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "samples.h"
#include "statistics.h"

namespace cohort::bench {
namespace {

using Json = nlohmann::json;

std::vector<double> times_of(const GpuEntry& entry, double GpuSample::*time) {
  std::vector<double> out;
  for (const GpuSample& sample : entry.samples) out.push_back(sample.*time);
  return out;
}

double median_us(const GpuEntry& entry) { return median(times_of(entry, &GpuSample::us)); }

bool counts(const GpuEntry& entry, const GpuTask& task) {
  return !entry.samples.empty() && entry.difference <= task.tolerance;
}

// The fastest of those that did the same work; null: nobody.
const GpuEntry* fastest(const GpuTable& table, bool ours) {
  const GpuEntry* best = nullptr;
  for (const GpuEntry& entry : table.entries) {
    if ((entry.spec.family == "cohort") != ours || !counts(entry, table.task)) continue;
    if (entry.spec.name == "cohort_fit_host") continue;
    if (best == nullptr || median_us(entry) < median_us(*best)) best = &entry;
  }
  return best;
}

std::string line_of(const GpuEntry& entry, const GpuTask& task, double ours_us) {
  char line[256];
  if (entry.samples.empty()) {
    std::snprintf(line, sizeof line, "%-22s ", entry.spec.name.c_str());
    return line + entry.failure + '\n';
  }
  const std::vector<double> us = times_of(entry, &GpuSample::us);
  const double host = median(times_of(entry, &GpuSample::host_us));
  std::snprintf(line, sizeof line, "%-22s %10.1f %10.1f %10.1f %10s %7.3f %9.1e%s",
                entry.spec.name.c_str(), median(us), quantile(us, 0), quantile(us, 1),
                host > 0 ? number(host, "%.1f").c_str() : "-", median(us) / ours_us,
                entry.difference, entry.difference <= task.tolerance ? "" : " OTHER LOSSES");
  std::string out = line;
  if (!entry.failure.empty()) out += " then: " + entry.failure;
  return out + '\n';
}

Json to_json(const GpuEntry& entry) {
  return {{"name", entry.spec.name},
          {"versions", entry.versions},
          {"failure", entry.failure},
          {"curve", entry.curve},
          {"difference", entry.difference},
          {"steps", entry.steps},
          {"kernels_us", entry.kernels_us},
          {"us", times_of(entry, &GpuSample::us)},
          {"host_us", times_of(entry, &GpuSample::host_us)}};
}

Json to_json(const GpuTable& table) {
  const GpuTask& task = table.task;
  Json out = {{"task", task.name},
              {"batch", task.batch},
              {"precision", task.precision},
              {"optimizer", task.optimizer},
              {"learning_rate", task.learning_rate},
              {"momentum", task.momentum},
              {"tolerance", task.tolerance},
              {"tiny", task.tiny},
              {"failure", table.failure},
              {"contenders", Json::array()}};
  for (const GpuEntry& entry : table.entries) out["contenders"].push_back(to_json(entry));
  return out;
}

}  // namespace

std::string gpu_table(const GpuTable& table) {
  const GpuTask& task = table.task;
  std::string out = str_cat("\n", task.name, ": ", task.batch, " rows, ", task.precision, ", ",
                            task.optimizer, task.tiny ? ", tiny" : "");
  if (!table.failure.empty()) return out + ": left out: " + table.failure + '\n';
  const GpuEntry* ours = fastest(table, true);
  const GpuEntry* peer = fastest(table, false);
  const double ours_us = ours ? median_us(*ours) : std::numeric_limits<double>::quiet_NaN();
  char line[256];
  std::snprintf(line, sizeof line, "\n%-22s %10s %10s %10s %10s %7s %9s\n", "contender", "us",
                "min", "max", "host us", "ratio", "losses");
  out += line;
  for (const GpuEntry& entry : table.entries) out += line_of(entry, task, ours_us);
  for (const GpuEntry& entry : table.entries) {
    if (entry.kernels_us <= 0) continue;
    std::snprintf(line, sizeof line, "%-22s %10.1f\n", "(its kernels' sum)", entry.kernels_us);
    out += line;
  }
  if (ours && peer) {
    std::snprintf(line, sizeof line, "gpu_bench: task=%s us=%.1f ours=%s peer=%s vs_peer=%.3f\n",
                  task.name.c_str(), ours_us, ours->spec.name.c_str(), peer->spec.name.c_str(),
                  median_us(*peer) / ours_us);
    out += line;
  }
  return out;
}

std::string gpu_update_line(const GpuUpdate& update) {
  if (!update.failure.empty()) return "\nadam: " + update.failure + '\n';
  char line[160];
  std::snprintf(line, sizeof line,
                "\ngpu_bench: task=adam update_gbytes=%.0f copy_gbytes=%.0f share=%.3f\n",
                update.update_gbytes, update.copy_gbytes, update.share());
  return line;
}

void write_gpu_json(const GpuOptions& options, const std::vector<GpuTable>& tables,
                    const GpuUpdate& update) {
  Json out = to_json(facts_of_run(options.samples, options.seconds));
  out["device"] = options.device;
  out["adam"] = {{"update_gbytes", update.update_gbytes},
                 {"copy_gbytes", update.copy_gbytes},
                 {"share", update.share()},
                 {"failure", update.failure}};
  out["tasks"] = Json::array();
  for (const GpuTable& table : tables) out["tasks"].push_back(to_json(table));
  std::ofstream file(options.json);
  // Losses that are not finite become null.
  file << out.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  COHORT_CHECK_STATE(file, "[gpu_bench] cannot write ", options.json);
}

}  // namespace cohort::bench
