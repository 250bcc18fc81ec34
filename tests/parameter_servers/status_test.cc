// SPDX-License-Identifier: Apache-2.0
//
// A job of real processes, one of which is killed, as `cohort status` and the page show it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::testing::free_ports;
using cohort::testing::Job;
using cohort::testing::Process;
using nlohmann::json;

struct Said {
  int code = -1;
  std::string text = {};
};

Said asked(const std::vector<std::string>& words,
           const std::vector<std::string>& environment = {}) {
  Process process(words, environment);
  Said out;
  out.code = process.wait();
  out.text = process.text();
  return out;
}

// The first status of which it holds; the last one where it never does.
json status_when(const std::string& address, const std::function<bool(const json&)>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  json last;
  while (std::chrono::steady_clock::now() < limit) {
    const Said said = asked({COHORT_TOOL, "status", "--address", address, "--json"});
    last = json::parse(said.text, nullptr, false);
    if (said.code == 0 && last.is_object() && holds(last)) return last;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  ADD_FAILURE() << "it did not come to that: " << last;
  return last;
}

json task_of(const json& all, const std::string& name) {
  for (const json& each : all.at("tasks")) {
    if (each.at("task") == name) return each;
  }
  return json::object();
}

bool is_state(const json& all, const std::string& name, const std::string& state) {
  return task_of(all, name).value("state", "") == state;
}

class LookedAt : public ::testing::Test {
 protected:
  ~LookedAt() override { ::unlink(file_.c_str()); }
  void end_job() const { std::ofstream(file_) << "end\n"; }

  const int port_ = free_ports(1).front();
  const std::string file_ = str_cat(::testing::TempDir(), "status_", ::getpid(), "_ends");
  const std::string page_ = str_cat("http://127.0.0.1:", port_, "/");
};

TEST_F(LookedAt, AJobShowsWhatItDoesAndWhoIsLost) {
  const Job job({PROGRAM, std::to_string(port_), file_}, 1);
  const std::string address = job.address_of_chief();
  auto chief = job.start("chief", 0);
  json all = status_when(address, [](const json&) { return true; });
  EXPECT_TRUE(is_state(all, "worker 1", "awaited")) << all;  // and before anybody has come
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  auto killed = job.start("worker", 1);
  ASSERT_TRUE(chief->wait_for("refused")) << chief->text();

  all = status_when(address, [](const json& now) {
    return now["functions"]["done"] > 40 && now["rows"]["changed_per_second"] > 0.0 &&
           now["functions"]["per_second"] > 0.0 && task_of(now, "worker 1").value("done", 0) > 0 &&
           is_state(now, "worker 0", "alive") && is_state(now, "worker 1", "alive") &&
           is_state(now, "ps 0", "alive");
  });
  EXPECT_EQ(all["functions"]["failed"], 1) << all;
  EXPECT_EQ(all["replicas"], 1) << all;
  EXPECT_GT(task_of(all, "ps 0")["memory_bytes"], 10 << 20) << all;
  bool is_said = false;  // beside what a busy machine may add
  for (const json& each : all["errors"]) {
    is_said |= each["text"].get<std::string>().find(
                   "refuse has thrown: <b>no</b> \x1b[31m& such") != std::string::npos;
  }
  EXPECT_TRUE(is_said) << all;

  killed->signal(SIGKILL);
  all = status_when(address, [](const json& now) { return is_state(now, "worker 1", "lost"); });
  EXPECT_EQ(all["errors"][0]["task"], "worker 1") << all;

  const Said shown = asked({COHORT_TOOL, "status", "--address", address});
  EXPECT_EQ(shown.code, 0) << shown.text;
  EXPECT_NE(shown.text.find("refuse has thrown: <b>no</b>  [31m& such"), std::string::npos)
      << "no control characters: " << shown.text;
  EXPECT_EQ(shown.text.find('\x1b'), std::string::npos) << shown.text;
  const Said read = asked({"python3", READ_PAGE, page_});
  EXPECT_EQ(read.code, 0) << read.text;
  EXPECT_NE(read.text.find("\tlost\t"), std::string::npos) << read.text;
  EXPECT_NE(read.text.find("failed\t1\n"), std::string::npos) << read.text;
  EXPECT_NE(read.text.find("refuse has thrown: <b>no</b>"), std::string::npos) << read.text;

  killed = job.start("worker", 1, {}, {"COHORT_RESTART_COUNT=1", "COHORT_COORDINATOR_LEASE=60"});
  all = status_when(address, [](const json& now) { return is_state(now, "worker 1", "alive"); });
  EXPECT_EQ(task_of(all, "worker 1")["starts"], 2) << all;
  end_job();
  EXPECT_EQ(chief->wait(), 0) << chief->text();
}

TEST_F(LookedAt, OnlyWhoKnowsTheTokenIsTold) {
  const std::string token = "COHORT_JOB_TOKEN=sixteen letters at least";
  const Job job({PROGRAM, std::to_string(port_), file_}, 1, {token});
  const std::string address = job.address_of_chief();
  const auto chief = job.start("chief", 0);
  const auto ps = job.start("ps", 0);
  const auto worker = job.start("worker", 0);
  const auto other = job.start("worker", 1);
  ASSERT_TRUE(chief->wait_for("refused")) << chief->text();
  const std::vector<std::string> ask = {COHORT_TOOL, "status", "--address", address};
  const Said refused = asked(ask);
  EXPECT_EQ(refused.code, 1) << refused.text;
  EXPECT_EQ(refused.text.find("worker 0"), std::string::npos) << refused.text;
  EXPECT_NE(asked(ask, {token}).text.find("worker 0"), std::string::npos);
  // One of its processes says where the job is, and what is to be known.
  const Said by_pid =
      asked({COHORT_TOOL, "status", "--pid", std::to_string(worker->pid()), "--json"});
  EXPECT_EQ(by_pid.code, 0) << by_pid.text;
  EXPECT_EQ(by_pid.text.find("sixteen letters"), std::string::npos) << by_pid.text;
  end_job();
  EXPECT_EQ(chief->wait(), 0) << chief->text();
}

TEST(StatusTool, SaysWhatIsMissing) {
  const Said nobody = asked({"env", "-u", "TF_CONFIG", COHORT_TOOL, "status"});
  EXPECT_EQ(nobody.code, 1) << nobody.text;
  EXPECT_NE(nobody.text.find("--address"), std::string::npos) << nobody.text;
  const std::string free = str_cat("127.0.0.1:", free_ports(1).front());
  const Said silent = asked({COHORT_TOOL, "status", "--address", free});
  EXPECT_EQ(silent.code, 1) << silent.text;
  EXPECT_NE(silent.text.find(free), std::string::npos) << silent.text;
}

}  // namespace
