// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/logging.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>

#include "cohort/base/log_tag.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::base {
namespace {

// Of set_log_tag; read without a lock, which a fork could leave taken. Never destroyed: what
// destructors of statics say is written, too.
constinit std::atomic<const std::string*> g_log_tag{nullptr};

bool is_on(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, "1") == 0;
}

// Of JSON. Bytes above ASCII stay as they are.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[16];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

int minimum_level() {
  for (const char* name : {"COHORT_MIN_LOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL"}) {
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0') {
      return std::atoi(text);
    }
  }
  return 0;
}

// "cohort/data/x.cc", also where a program's own compiler gave an absolute path.
const char* short_path(const char* file) {
  const char* found = nullptr;
  for (const char* at = std::strstr(file, "cohort/"); at != nullptr;
       at = std::strstr(at + 1, "cohort/")) {
    found = at;
  }
  return found != nullptr ? found : file;
}

std::string time_stamp() {
  using std::chrono::system_clock;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char date[32];
  std::strftime(date, sizeof date, "%F %T", &local);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%06d", date, static_cast<int>(micros));
  return text;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const int minimum = minimum_level();
  return static_cast<int>(level) >= minimum;
}

void set_log_tag(const std::string& task) {
  static auto* const mutex = new Mutex;
  static auto* const all = new std::set<std::string>;
  const MutexLock lock(*mutex);
  g_log_tag.store(&*all->insert(task).first, std::memory_order_release);
}

void log_line(LogLevel level, const char* file, int line, const std::string& text) {
  static const bool as_json = is_on("COHORT_LOG_JSON");
  static const bool with_thread = is_on("TF_CPP_LOG_THREAD_ID");
  const std::string* const tag = g_log_tag.load(std::memory_order_acquire);
  const std::string task = tag != nullptr ? *tag : "";
  const auto thread = static_cast<long>(::syscall(SYS_gettid));
  std::string out;
  if (as_json) {
    constexpr const char* kLevels[] = {"INFO", "WARNING", "ERROR", "FATAL"};
    out = str_cat("{\"time\": ", quoted(time_stamp()), ", \"level\": \"",
                  kLevels[static_cast<int>(level)], "\", \"task\": ", quoted(task),
                  ", \"thread\": ", thread, ", \"file\": ", quoted(short_path(file)),
                  ", \"line\": ", line, ", \"message\": ", quoted(text), "}\n");
  } else {
    const char letter = "IWEF"[static_cast<int>(level)];
    out = str_cat(time_stamp(), ": ", letter, with_thread ? str_cat(" ", thread) : "", ' ',
                  short_path(file), ':', line, "] ", task.empty() ? "" : str_cat("[", task, "] "),
                  text, '\n');
  }
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, out.data(), out.size());
}

}  // namespace cohort::internal::base
