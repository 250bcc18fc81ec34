// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cohort/base/display.h"
#include "cohort/base/strings.h"
#include "cohort/cluster/environment.h"
#include "cohort/rpc/client.h"

namespace cohort_tool {
namespace {

using cohort::str_cat;
using nlohmann::json;
namespace base = cohort::internal::base;
namespace rpc = cohort::internal::rpc;

constexpr std::chrono::seconds kStatusTimeout{5};
constexpr std::chrono::seconds kWatchPause{1};
// As cohort/coordinator/status/status_server.h has it, which this program does not link.
constexpr const char* kStatusMethod = "coordinator.status";

// What a process was started with that says where its job is, and who is let in.
void take_environment_of(int pid) {
  const std::string path = str_cat("/proc/", pid, "/environ");
  std::ifstream file(path, std::ios::binary);
  std::string line;
  bool has_any = false;
  while (std::getline(file, line, '\0')) {
    if (line.rfind("TF_CONFIG=", 0) != 0 && line.rfind("COHORT_", 0) != 0) continue;
    const auto equals = line.find('=');
    ::setenv(line.substr(0, equals).c_str(), line.c_str() + equals + 1, 1);
    has_any = true;
  }
  if (!has_any) {
    throw std::runtime_error(str_cat("expected a process of a job, of this user's, whose ", path,
                                     " has TF_CONFIG, got none"));
  }
}

std::string address_of_chief() {
  const cohort::ClusterSpec spec = cohort::TFConfigClusterResolver().cluster_spec();
  if (spec.has_job("chief") && spec.num_tasks("chief") > 0) {
    return spec.task_address("chief", spec.task_indices("chief").front());
  }
  throw std::runtime_error(
      "expected --address HOST:PORT of a job's chief, or --pid of one of its processes, or a chief "
      "in TF_CONFIG, got none of them");
}

// Terminals obey control characters, and these texts are others'.
std::string plain(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which some terminals take for such, too.
    const bool is_high =
        c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_high) ++i;
    out += (c < 0x20 || c == 0x7f || is_high) ? ' ' : text[i];
  }
  return out;
}

std::string said(const json& of, const char* name) {
  return of.contains(name) ? plain(of.at(name).get<std::string>()) : "";
}

std::string count(const json& of, const char* name) {
  return of.contains(name) ? std::to_string(of.at(name).get<uint64_t>()) : "-";
}

std::string duration(const json& of, const char* name) {
  return of.contains(name) ? base::duration_text(of.at(name).get<double>()) : "-";
}

std::string rate(const json& of, const char* name) {
  return of.contains(name) ? base::rate_text(of.at(name).get<double>()) : "-";
}

std::string groups_of(const json& task) {
  std::string out;
  if (!task.contains("groups")) return out;
  for (const json& each : task.at("groups")) {
    out += str_cat(out.empty() ? "" : "; ", "group ", count(each, "group"), " ", said(each, "role"),
                   ", epoch ", count(each, "epoch"));
    if (said(each, "role") == "primary") {
      out += str_cat(", backups ", count(each, "backups"), ", lag ", count(each, "lag"));
    }
  }
  return out;
}

// Columns as wide as what is in them.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += row[c] + std::string(widths[c] - row[c].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string tasks_text(const json& all) {
  std::vector<std::vector<std::string>> rows = {{"task", "address", "state", "alive", "heard",
                                                 "starts", "MiB", "running", "done", "rows read/s",
                                                 "changed/s", "replicas"}};
  for (const json& each : all.at("tasks")) {
    const bool is_alive = said(each, "state") == "alive";
    const double mib = each.value("memory_bytes", 0.0) / (1 << 20);
    rows.push_back({said(each, "task"), said(each, "address"), said(each, "state"),
                    is_alive ? duration(each, "alive_s") : "-", duration(each, "heard_s"),
                    count(each, "starts"), mib > 0 ? base::fixed_text(mib, 0) : "-",
                    count(each, "running"), count(each, "done"), rate(each, "rows_read_per_second"),
                    rate(each, "rows_changed_per_second"), groups_of(each)});
  }
  return table(rows);
}

std::string text_of(const json& all) {
  const json& functions = all.at("functions");
  std::string out =
      str_cat("coordinator on ", said(all, "host"), ", process ", count(all, "pid"), ", for ",
              duration(all, "up_s"), "; copies of each variable: ", count(all, "replicas"),
              "\nfunctions: ", count(functions, "queued"), " queued, ", count(functions, "running"),
              " running, ", count(functions, "done"), " done, ", count(functions, "failed"),
              " failed, ", count(functions, "again"), " run again; ", rate(functions, "per_second"),
              " each second\n\n", tasks_text(all), "\n");
  if (all.at("errors").empty()) return out + "no errors\n";
  out += "last errors\n";
  for (const json& each : all.at("errors")) {
    out += str_cat(said(each, "time"), "  ", said(each, "task"), "  ", said(each, "text"), "\n");
  }
  return out;
}

void show(const StatusOptions& options, const std::string& answer) {
  // A terminal's picture is drawn anew; a file gets one behind the other.
  const bool clears = options.watch && !options.json && ::isatty(STDOUT_FILENO) == 1;
  const std::string text = options.json ? answer + "\n" : text_of(json::parse(answer));
  std::printf("%s%s", clears ? "\033[H\033[2J" : "", text.c_str());
  std::fflush(stdout);
}

}  // namespace

int status(const StatusOptions& options) {
  if (options.pid > 0) take_environment_of(options.pid);
  const std::string address = options.address.empty() ? address_of_chief() : options.address;
  rpc::RpcClient coordinator({.address = address,
                              .server_name = "the coordinator",
                              .security = rpc::security_from_environment(),
                              .claims = {.task = "cohort status"}});
  while (true) {
    show(options,
         coordinator.call(kStatusMethod, rpc::Payload(), {.timeout = kStatusTimeout}).text());
    if (!options.watch) return 0;
    std::this_thread::sleep_for(kWatchPause);
  }
}

}  // namespace cohort_tool
