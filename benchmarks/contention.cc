// SPDX-License-Identifier: Apache-2.0
#include "contention.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <sstream>

#include "cohort/base/check.h"
#include "load.h"
#include "machine.h"
#include "runner.h"
#include "statistics.h"

namespace cohort::bench {
namespace {

using std::chrono::seconds;

constexpr seconds kPrepareLimit{240};
constexpr seconds kRunLimit{120};
constexpr useconds_t kPeriod =
    150'000;  // longer than a quota's period: every sample starts with a new one

std::string name_of(const Case& c) { return c.model == "demo" ? c.model : c.name(); }

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

// The contenders of one case, started together, in a cgroup or not.
class Crew {
 public:
  Crew(std::vector<ContentionEntry>& entries, const Case& c, const ContentionOptions& options,
       CpuQuota* quota)
      : entries_(entries), seconds_(options.seconds) {
    if (quota != nullptr) quota->enter();
    for (ContentionEntry& entry : entries_) processes_.push_back(start(entry, c, options));
    if (quota != nullptr) quota->leave();
    prepare(c, options);
  }

  void run(std::size_t index, const Load& load) {
    ContentionEntry& entry = entries_[index];
    guarded(index, [&](ContenderProcess& process) {
      const std::vector<int> group = {process.process_group()};
      const double cpu_before = cpu_time(group).groups;
      Contended& to = entry.by_load[load.name()];
      const std::int64_t steps = steps_now(entry, to);
      process.send("run " + std::to_string(steps));
      const double us = std::stod(first_word(process.receive(kRunLimit))) / 1e3;
      to.us.push_back(us / static_cast<double>(steps));
      to.cores.push_back((cpu_time(group).groups - cpu_before) * 1e6 / us);
    });
  }

  // As many steps as fit the time on a quiet machine.
  void calibrate(double limit) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      ContentionEntry& entry = entries_[i];
      if (entry.steps > 0) continue;
      guarded(i, [&](ContenderProcess& process) {
        std::int64_t steps = 10;
        double ns = 0;
        for (int go = 0; go < 2; ++go) {  // the first is for lazy starts
          process.send("run " + std::to_string(steps));
          ns = std::stod(first_word(process.receive(kRunLimit))) / static_cast<double>(steps);
        }
        entry.steps = std::max<std::int64_t>(steps, std::llround(limit * 1e9 / ns));
      });
    }
  }

 private:
  // Who was slowed down a hundred times has shown it: its next samples are shorter.
  std::int64_t steps_now(const ContentionEntry& entry, const Contended& before) const {
    constexpr double kLongest = 8;  // times a quiet sample
    if (before.us.empty()) return entry.steps;
    const double fit = kLongest * seconds_ * 1e6 / before.us.back();
    return std::clamp<std::int64_t>(std::llround(fit), std::min<std::int64_t>(10, entry.steps),
                                    entry.steps);
  }

  std::unique_ptr<ContenderProcess> start(ContentionEntry& entry, const Case& c,
                                          const ContentionOptions& options) {
    if (entry.status != "ok") return nullptr;
    auto command = entry.spec.command;
    if (entry.spec.max_replicas > entry.spec.min_replicas) {
      command.insert(command.end(), {"--replicas", std::to_string(c.replicas)});
    }
    const std::string log = options.logs + "/" + entry.spec.name + ".log";
    try {
      return std::make_unique<ContenderProcess>(command, entry.spec.environment, log);
    } catch (const Error& error) {
      entry.status = "failed";
      entry.reason = error.what();
      return nullptr;
    }
  }

  void prepare(const Case& c, const ContentionOptions& options) {
    const std::string path = options.scratch + "/workload.bin";
    export_workload(c, options.images, path);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      guarded(i, [&](ContenderProcess& process) {
        process.receive(kPrepareLimit);
        process.send("init " + path);
      });
    }
    std::vector<double> losses(entries_.size(), 0);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      guarded(i, [&](ContenderProcess& process) {
        process.receive(kPrepareLimit);
        process.send("loss " + std::to_string(proof_steps(c)));
        losses[i] = std::stod(first_word(process.receive(kPrepareLimit)));
      });
    }
    unlink(path.c_str());
    prove_same_work(losses);
  }

  void prove_same_work(const std::vector<double>& losses) {
    std::vector<double> known;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].status == "ok" && entries_[i].spec.same_work) known.push_back(losses[i]);
    }
    const double reference = median(known);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].status != "ok" || !entries_[i].spec.same_work) continue;
      if (std::abs(losses[i] - reference) <= kProofTolerance * std::abs(reference)) continue;
      entries_[i].status = "mismatch";
      entries_[i].reason = str_cat("loss ", losses[i], " against ", reference);
    }
  }

  void guarded(std::size_t index, const std::function<void(ContenderProcess&)>& talk) {
    ContentionEntry& entry = entries_[index];
    if (entry.status != "ok" || !processes_[index]) return;
    try {
      talk(*processes_[index]);
    } catch (const Error& error) {
      entry.status = "failed";
      entry.reason = error.what();
      processes_[index].reset();
    }
  }

  std::vector<ContentionEntry>& entries_;
  const double seconds_;
  std::vector<std::unique_ptr<ContenderProcess>> processes_;
};

void sample_all(Crew& crew, std::size_t count, const Load& load, std::mt19937& shuffler) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), shuffler);
  for (const std::size_t index : order) {
    usleep(kPeriod);
    crew.run(index, load);
  }
}

const Contended* under(const ContentionEntry& entry, const Load& load) {
  const auto found = entry.by_load.find(load.name());
  return found == entry.by_load.end() ? nullptr : &found->second;
}

// What one line of the table, or of the summary, says.
struct Numbers {
  double us = 0;
  double slowdown = 0;
  double explained = 0;
};

std::optional<Numbers> numbers(const ContentionEntry& entry, const Load& load, int cores) {
  const Contended* now = under(entry, load);
  const Contended* alone = under(entry, Load{});
  if (entry.status != "ok" || now == nullptr || alone == nullptr) return {};
  const double us = median(now->us);
  return Numbers{us, us / median(alone->us), explained_slowdown(load, median(alone->cores), cores)};
}

bool is_peer(const ContentionEntry& entry) {
  return entry.spec.family != Family::kCohort && entry.spec.family != Family::kLimit;
}

// The slowdown of threads that only compute and meet, where they took part.
std::optional<double> lockstep_slowdown(const ContentionResult& result,
                                        const ContentionOptions& options, const Load& load) {
  for (const ContentionEntry& entry : result.entries) {
    if (entry.spec.family != Family::kLimit) continue;
    if (const auto n = numbers(entry, load, options.cores)) return n->slowdown;
  }
  return {};
}

const ContentionEntry* best_peer(const ContentionResult& result, const Load& load) {
  const ContentionEntry* best = nullptr;
  for (const ContentionEntry& entry : result.entries) {
    if (!is_peer(entry) || entry.status != "ok") continue;
    const Contended* now = under(entry, load);
    if (now == nullptr) continue;
    if (best == nullptr || median(now->us) < median(under(*best, load)->us)) best = &entry;
  }
  return best;
}

}  // namespace

std::string Load::name() const {
  if (quota > 0) return "quota:" + number(quota, "%g");
  return busy > 0 ? str_cat("busy:", busy) : "quiet";
}

Load parse_load(const std::string& text) {
  Load load;
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const double value = colon == std::string::npos ? 0 : std::strtod(&text[colon + 1], nullptr);
  if (kind == "busy") load.busy = static_cast<int>(value);
  if (kind == "quota") load.quota = value;
  COHORT_CHECK_ARG(load.name() == text,
                   "[contention_bench] expected quiet, busy:N or quota:CORES, got ", text);
  return load;
}

double explained_slowdown(const Load& load, double used, int cores) {
  if (load.quota > 0) return std::max(1.0, used / load.quota);
  return load.busy == 0 ? 1 : std::max(1.0, (used + load.busy) / cores);
}

ContentionResult run_contention(const Case& c, const std::vector<ContenderSpec>& roster,
                                const ContentionOptions& options) {
  ContentionResult result{c, {}, {}};
  for (const ContenderSpec& spec : roster) {
    if (!spec.takes_part(c)) continue;
    ContentionEntry entry;
    entry.spec = spec;
    if (!spec.missing.empty()) entry.status = "missing", entry.reason = spec.missing;
    result.entries.push_back(std::move(entry));
  }
  std::mt19937 shuffler(static_cast<unsigned>(c.batch));
  {
    Crew crew(result.entries, c, options, nullptr);
    crew.calibrate(options.seconds);
    for (int round = 0; round < options.rounds; ++round) {
      for (const Load& load : options.loads) {
        if (load.quota > 0) continue;
        const BusyProcesses busy(load.busy);
        sample_all(crew, result.entries.size(), load, shuffler);
      }
    }
  }
  for (const Load& load : options.loads) {
    if (load.quota <= 0) continue;
    try {
      CpuQuota quota(load.quota);
      Crew crew(result.entries, c, options, &quota);
      for (int round = 0; round < options.rounds; ++round) {
        sample_all(crew, result.entries.size(), load, shuffler);
      }
    } catch (const Unavailable& error) {
      result.skipped[load.name()] = error.what();
    }
  }
  return result;
}

std::string contention_table(const ContentionResult& result, const ContentionOptions& options) {
  std::string out = "\n" + name_of(result.benchmark_case) + "\n";
  char line[256];
  std::snprintf(line, sizeof line, "  %-10s %-16s %12s %10s %10s %8s\n", "load", "contender",
                "us/step", "slowdown", "explained", "by it");
  out += line;
  for (const Load& load : options.loads) {
    const auto skipped = result.skipped.find(load.name());
    if (skipped != result.skipped.end()) {
      out += str_cat("  ", load.name(), " skipped: ", skipped->second, "\n");
      continue;
    }
    for (const ContentionEntry& entry : result.entries) {
      const auto n = numbers(entry, load, options.cores);
      if (!n) continue;
      std::snprintf(line, sizeof line, "  %-10s %-16s %12.1f %10.2f %10.2f %8.2f\n",
                    load.name().c_str(), entry.spec.name.c_str(), n->us, n->slowdown, n->explained,
                    n->slowdown / n->explained);
      out += line;
    }
  }
  for (const ContentionEntry& entry : result.entries) {
    if (entry.status == "ok") continue;
    out += str_cat("  ", entry.spec.name, " state=", entry.status, ": ", entry.reason, "\n");
  }
  return out;
}

std::string contention_lines(const ContentionResult& result, const ContentionOptions& options) {
  const auto ours =
      std::find_if(result.entries.begin(), result.entries.end(),
                   [](const auto& entry) { return entry.spec.family == Family::kCohort; });
  std::string out;
  for (const Load& load : options.loads) {
    out +=
        str_cat("contention_bench: case=", name_of(result.benchmark_case), " load=", load.name());
    const auto skipped = result.skipped.find(load.name());
    const auto n =
        ours == result.entries.end() ? std::nullopt : numbers(*ours, load, options.cores);
    if (skipped != result.skipped.end() || !n) {
      out += " us=na state=skipped\n";
      continue;
    }
    const ContentionEntry* best = best_peer(result, load);
    out += str_cat(" us=", number(n->us, "%.1f"), " slowdown=", number(n->slowdown, "%.2f"),
                   " explained=", number(n->explained, "%.2f"),
                   " by_it=", number(n->slowdown / n->explained, "%.2f"));
    if (const auto limit = lockstep_slowdown(result, options, load)) {
      out += " by_lockstep=" + number(n->slowdown / *limit, "%.2f");
    }
    out += best == nullptr
               ? std::string(" best_peer=na vs_best=na")
               : str_cat(" best_peer=", best->spec.name,
                         " vs_best=", number(median(under(*best, load)->us) / n->us, "%.2f"));
    out += "\n";
  }
  return out;
}

}  // namespace cohort::bench
