// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/failpoint.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::base {
namespace {

constexpr const char* kVariable = "COHORT_FAILPOINTS";

struct Failpoint {
  std::string place = {};
  std::string action = {};
  int times = 1;  // until it acts
};

int number_after(std::string_view text, std::size_t at) {
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + at + 1, end, number);
  COHORT_CHECK_ARG(read.ec == std::errc() && read.ptr == end && number >= 0, "[failpoint] ",
                   kVariable, ": expected a number after ", text[at], ", got ", text);
  return number;
}

// Cuts "#N" or "@RANK" off the end.
std::optional<int> take_number(std::string_view& text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const int number = number_after(text, at);
  text = text.substr(0, at);
  return number;
}

bool is_this_process(int rank) {
  const char* const mine = std::getenv("RANK");
  return mine != nullptr && std::to_string(rank) == mine;
}

std::vector<Failpoint> read_failpoints(std::string_view text) {
  std::vector<Failpoint> out;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const auto rank = take_number(one, '@');
    const auto times = take_number(one, '#');
    const std::size_t equals = one.find('=');
    const std::string_view action = equals < one.size() ? one.substr(equals + 1) : "";
    COHORT_CHECK_ARG(action == "kill" || action == "stop" || action == "throw", "[failpoint] ",
                     kVariable, ": expected PLACE=kill, stop or throw, got ", one);
    if (rank && !is_this_process(*rank)) continue;
    out.push_back({.place = std::string(one.substr(0, equals)),
                   .action = std::string(action),
                   .times = times.value_or(1)});
  }
  return out;
}

// Which action is due, if any.
std::string due_at(const char* place) {
  static constinit Mutex mutex;
  [[maybe_unused]] static const bool kept = keep_free_over_fork(mutex);
  static std::vector<Failpoint> all = read_failpoints(std::getenv(kVariable));
  const MutexLock lock(mutex);
  for (Failpoint& each : all) {
    if (each.place == place && --each.times == 0) return each.action;
  }
  return "";
}

}  // namespace

std::atomic<FailpointHook> g_failpoint_hook{
    std::getenv(kVariable) == nullptr ? nullptr : &obey_failpoints_variable};

void obey_failpoints_variable(const char* place) {
  const std::string action = due_at(place);
  if (action == "kill") ::raise(SIGKILL);
  if (action == "stop") ::raise(SIGSTOP);
  if (action == "throw") throw Internal(str_cat("[failpoint] ", place, " was told to fail"));
}

}  // namespace cohort::internal::base
