// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/snippet_test.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "cohort/base/reserved_ports.h"

namespace cohort::docs {
namespace {

/// An empty folder to work in; the one before comes back at the end.
class EmptyFolder {
 public:
  EmptyFolder() : before_(std::filesystem::current_path()) {
    std::string name = ::testing::TempDir() + "snippet-XXXXXX";
    path_ = mkdtemp(name.data());
    std::filesystem::current_path(path_);
  }
  ~EmptyFolder() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(path_);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;

 private:
  std::filesystem::path before_;
  std::filesystem::path path_;
};

/// Bounds of fit, as anybody can set them.
class FewSteps {
 public:
  explicit FewSteps(int steps) : set_(steps > 0) {
    if (!set_) return;
    setenv("KERAS_MAX_STEPS_PER_EPOCH", std::to_string(steps).c_str(), 1);
    setenv("KERAS_MAX_EPOCHS", "2", 1);
  }
  ~FewSteps() {
    if (!set_) return;
    unsetenv("KERAS_MAX_STEPS_PER_EPOCH");
    unsetenv("KERAS_MAX_EPOCHS");
  }
  FewSteps(const FewSteps&) = delete;
  FewSteps& operator=(const FewSteps&) = delete;

 private:
  bool set_;
};

/// The other tasks of a job, and TF_CONFIG for its chief.
class Job {
 public:
  Job(int workers, int servers)
      : ports_(static_cast<std::size_t>(servers == 0 ? 0 : 1 + workers + servers)) {
    if (servers == 0) return;
    ClusterSpec::Jobs jobs;
    std::string text;
    const auto add = [&](const char* job, int first, int count) {
      for (int i = 0; i < count; ++i) {
        const std::string port = std::to_string(ports_[static_cast<std::size_t>(first + i)]);
        jobs[job].push_back("127.0.0.1:" + port);
        text += (i == 0 ? std::string("\"") + job + "\": [\"" : ", \"") + jobs[job].back() + "\"";
      }
      text += "], ";
    };
    add("worker", 1, workers);
    add("ps", 1 + workers, servers);
    add("chief", 0, 1);
    for (const auto& [job, addresses] : jobs) {
      for (int i = 0; job != "chief" && i < static_cast<int>(addresses.size()); ++i) {
        tasks_.push_back(std::make_unique<Server>(ClusterSpec(jobs),
                                                  ServerOptions{.job_name = job, .task_index = i}));
      }
    }
    text.erase(text.size() - 2);
    setenv("TF_CONFIG",
           ("{\"cluster\": {" + text + "}, \"task\": {\"type\": \"chief\", \"index\": 0}}").c_str(),
           1);
  }
  ~Job() {
    if (!tasks_.empty()) unsetenv("TF_CONFIG");
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  const internal::base::ReservedPorts ports_;
  std::vector<std::unique_ptr<Server>> tasks_;
};

/// Without spaces at the ends of lines and of the text.
std::string trimmed(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string out;
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    out += line + "\n";
  }
  out.erase(out.find_last_not_of('\n') + 1);
  return out;
}

/// True if `text` is the pattern, whose `...` stand for any text.
bool matches(std::string_view pattern, std::string_view text) {
  const std::size_t gap = pattern.find("...");
  if (gap == std::string_view::npos) return pattern == text;
  if (text.substr(0, gap) != pattern.substr(0, gap)) return false;
  const std::string_view rest = pattern.substr(gap + 3);
  for (std::size_t begin = gap; begin <= text.size(); ++begin) {
    if (matches(rest, text.substr(begin))) return true;
  }
  return false;
}

/// "InvalidArgument" of N6cohort15InvalidArgumentE.
bool is_called(const std::exception& e, std::string_view name) {
  return std::string_view(typeid(e).name()).find(name) != std::string_view::npos;
}

}  // namespace

void exit_status(int status) { ADD_FAILURE() << "the program returned " << status; }

void run(const Expected& expected, void (*snippet)()) {
  const std::string_view error = expected.error;
  const EmptyFolder folder;
  const FewSteps bounds(expected.steps);
  const Job job(expected.workers, expected.servers);
  std::string thrown, unexpected;
  keras::clear_session();  // names as in a program of its own
  ::testing::internal::CaptureStdout();
  try {
    snippet();
  } catch (const std::exception& e) {
    thrown = e.what();
    if (error.empty() || !is_called(e, error)) unexpected = typeid(e).name();
  }
  std::fflush(stdout);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(unexpected, "") << expected.where << " threw: " << thrown;
  if (!error.empty()) {
    EXPECT_FALSE(thrown.empty()) << expected.where << " should have thrown " << error;
  }
  if (expected.output == nullptr) return;
  const std::string want = trimmed(expected.output);
  const std::string got = trimmed(error.empty() ? printed : thrown);
  EXPECT_TRUE(matches(want, got)) << expected.where << "\nthe page says:\n"
                                  << want << "\nit is:\n"
                                  << got;
}

}  // namespace cohort::docs
