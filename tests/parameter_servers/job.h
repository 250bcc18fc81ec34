// SPDX-License-Identifier: Apache-2.0
//
// A job of a chief, two workers and one parameter server or more, each a real process.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"

namespace cohort::testing {

class Job {
 public:
  /// Of tasks that run this command.
  explicit Job(std::vector<std::string> command, int servers = 1,
               std::vector<std::string> environment = {})
      : command_(std::move(command)),
        servers_(servers),
        environment_(std::move(environment)),
        ports_(free_ports(3 + servers)) {}

  std::string address_of_chief() const { return str_cat("127.0.0.1:", ports_.at(0)); }

  std::unique_ptr<Process> start(const std::string& type, int index,
                                 const std::string& failpoints = {},
                                 const std::vector<std::string>& more = {}) const {
    const auto at = [this](int i) {
      return str_cat("\"127.0.0.1:", ports_.at(static_cast<std::size_t>(i)), "\"");
    };
    std::string servers = at(3);
    for (int s = 1; s < servers_; ++s) servers += ", " + at(3 + s);
    std::vector<std::string> environment = {
        "COHORT_MIN_LOG_LEVEL=1",
        str_cat("TF_CONFIG={\"cluster\": {\"chief\": [", at(0), "], \"ps\": [", servers,
                "], \"worker\": [", at(1), ", ", at(2), "]}, \"task\": {\"type\": \"", type,
                "\", \"index\": ", index, "}}")};
    environment.insert(environment.end(), environment_.begin(), environment_.end());
    environment.insert(environment.end(), more.begin(), more.end());
    if (!failpoints.empty()) environment.push_back("COHORT_FAILPOINTS=" + failpoints);
    return std::make_unique<Process>(command_, environment);
  }

 private:
  const std::vector<std::string> command_;
  const int servers_;
  const std::vector<std::string> environment_;
  const std::vector<int> ports_;
};

inline bool is_stopped(pid_t pid) {
  std::ifstream in(str_cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(in, text);
  const auto behind = text.rfind(')');
  return behind != std::string::npos && text.substr(behind, 3) == ") T";
}
/// Waits until one of them stands still (PLACE=stop). Null: none does.
inline Process* first_to_stop(const std::vector<Process*>& all) {
  for (int i = 0; i < 6000; ++i) {
    for (Process* const each : all) {
      if (is_stopped(each->pid())) return each;
    }
    ::usleep(10'000);
  }
  return nullptr;
}
inline bool comes_to_stop(Process& one) { return first_to_stop({&one}) != nullptr; }

/// What stands behind `name` in the chief's last line.
inline int number_behind(const std::string& text, const std::string& name) {
  const auto at = text.find(name);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size());
}

/// "PLACE" or "PLACE#N" as COHORT_FAILPOINTS has it.
inline std::string killing(const std::string& place) {
  const auto number = place.find('#');
  if (number == std::string::npos) return place + "=kill";
  return place.substr(0, number) + "=kill" + place.substr(number);
}

}  // namespace cohort::testing
