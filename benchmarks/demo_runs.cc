// SPDX-License-Identifier: Apache-2.0
#include "demo_runs.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <regex>

#include "cohort/base/check.h"
#include "load.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Of the processes that have ended and been waited for.
double children_cpu() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

constexpr int kDemoEpochs = 2;
constexpr int kMostRounds = 2;  // a run takes seconds

std::string joined_command(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += str_cat(text.empty() ? "'" : " '", word, "'");
  return text + " 2>/dev/null";
}

// What a command prints.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  COHORT_CHECK_STATE(pipe, "[contention_bench] cannot run ", command);
  std::string text;
  std::array<char, 4096> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    text.append(chunk.data(), n);
  }
  COHORT_CHECK_STATE(pclose(pipe) == 0, "[contention_bench] failed: ", command, "\n", text);
  return text;
}

ContentionEntry entry_of(const std::string& name, Family family, const std::string& missing) {
  ContentionEntry entry;
  entry.spec.name = name;
  entry.spec.family = family;
  if (!missing.empty()) entry.status = "missing", entry.reason = missing;
  return entry;
}

// The program prints "... epochs in 4.1 s ...". The cores used are those of the whole process.
void run_once(ContentionEntry& entry, const Load& load) {
  if (entry.status != "ok") return;
  const double before = children_cpu();
  const auto start = std::chrono::steady_clock::now();
  const std::string text = output_of(joined_command(entry.spec.command));
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::smatch found;
  static const std::regex kTime("epochs? in ([0-9.]+) s");
  COHORT_CHECK_STATE(std::regex_search(text, found, kTime),
                     "[contention_bench] expected \"epochs in ... s\" from ", entry.spec.name);
  Contended& to = entry.by_load[load.name()];
  to.us.push_back(std::stod(found[1]) * 1e6 / kDemoEpochs);
  to.cores.push_back((children_cpu() - before) / wall);
}

std::vector<ContentionEntry> programs(const Places& places, bool peers,
                                      const std::string& scratch) {
  const std::string epochs = std::to_string(kDemoEpochs);
  const std::string program =
      (fs::path(places.program).parent_path() / "../examples/fashion_mnist").string();
  ContentionEntry ours = entry_of("cohort", Family::kCohort,
                                  fs::exists(program) ? "" : "build the target fashion_mnist");
  ours.spec.command = {program, "--weights", scratch + "/demo.safetensors", "--epochs", epochs};
  std::vector<ContentionEntry> all = {ours};
  if (!peers) return all;
  ContentionEntry keras = entry_of("keras_fit", Family::kKeras, missing_environment(places, "xla"));
  keras.spec.command = peer_command(places, "xla", "keras_fashion_mnist.py");
  keras.spec.command.insert(keras.spec.command.end(), {"--epochs", epochs});
  all.push_back(keras);
  return all;
}

}  // namespace

ContentionResult run_demo(const Places& places, bool peers, const ContentionOptions& options) {
  ContentionResult result{{"demo", 0, 0}, programs(places, peers, options.scratch), {}};
  for (int round = 0; round < std::min(options.rounds, kMostRounds); ++round) {
    for (const Load& load : options.loads) {
      try {
        std::optional<CpuQuota> quota;
        if (load.quota > 0) quota.emplace(load.quota);
        const BusyProcesses busy(load.busy);
        for (ContentionEntry& entry : result.entries) {
          if (quota) quota->enter();
          run_once(entry, load);
          if (quota) quota->leave();
        }
      } catch (const Unavailable& error) {
        result.skipped[load.name()] = error.what();
      }
    }
  }
  return result;
}

}  // namespace cohort::bench
