// SPDX-License-Identifier: Apache-2.0
//
// Runs the program itself.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "cohort/base/strings.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/ports.h"

namespace {

struct Ran {
  int code = -1;
  std::string text = {};
  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};

Ran doctor(const std::string& variables) {
  return cohort::testing::run_with_deadline(std::chrono::seconds(60), [&] {
    Ran ran;
    std::FILE* pipe = ::popen(
        cohort::str_cat("env -i ", variables, " ", COHORT_TOOL, " doctor 2>&1").c_str(), "r");
    std::array<char, 4096> bytes;
    while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
      ran.text.append(bytes.data(), got);
    }
    const int status = ::pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return ran;
  });
}

TEST(Doctor, AProcessAloneIsTold) {
  const Ran ran = doctor("");
  EXPECT_TRUE(ran.says("a process is alone")) << ran.text;
  EXPECT_TRUE(ran.says("LibTorch 2.")) << ran.text;
  EXPECT_TRUE(ran.says("allowed of")) << ran.text;
}

TEST(Doctor, SaysWhoAnswersAndWhoDoesNot) {
  const auto [descriptor, port] = cohort::testing::bind_free_port();
  ASSERT_EQ(::listen(descriptor, 4), 0);
  const Ran ran = doctor(
      cohort::str_cat(R"(TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:)", port,
                      R"(", "nobody.invalid:2222"]}, "task": {"type": "worker", "index": 0}}')"));
  ::close(descriptor);
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("by TFConfigClusterResolver: TF_CONFIG is set")) << ran.text;
  EXPECT_TRUE(ran.says("worker 0, the chief")) << ran.text;
  EXPECT_TRUE(ran.says(cohort::str_cat("127.0.0.1:", port, " answers in "))) << ran.text;
  EXPECT_TRUE(ran.says("wrong: worker 1 at nobody.invalid:2222 its name is not known")) << ran.text;
}

TEST(Doctor, SaysWhoIsLetInAndShowsNoSecret) {
  const Ran open = doctor("COHORT_JOB_TOKEN=a-secret-of-the-job");
  EXPECT_TRUE(open.says("in COHORT_JOB_TOKEN")) << open.text;
  EXPECT_TRUE(open.says("none: addresses beyond loopback are refused")) << open.text;
  EXPECT_FALSE(open.says("a-secret")) << open.text;
  const Ran far = doctor(
      R"(TF_CONFIG='{"cluster": {"worker": ["192.0.2.1:1"]}, "task": {"type": "worker", "index": 0}}')");
  EXPECT_TRUE(far.says("worker 0 at 192.0.2.1:1 is beyond loopback, which is refused without TLS"))
      << far.text;
  const Ran broken = doctor(
      "COHORT_TLS_CERTIFICATE=/nowhere/a COHORT_TLS_KEY=/nowhere/b COHORT_TLS_AUTHORITY=/nowhere/c "
      "COHORT_STORE=127.0.0.1:1");
  EXPECT_EQ(broken.code, 1) << broken.text;
  EXPECT_TRUE(
      broken.says("wrong: [tls] expected a file in PEM with a certificate, got "
                  "\"/nowhere/a\""))
      << broken.text;
  EXPECT_TRUE(broken.says("wrong: the launcher's store at 127.0.0.1:1 (COHORT_STORE)"))
      << broken.text;
}

TEST(Doctor, SaysWhereTheDescriptionIsWrong) {
  const Ran ran = doctor(R"(TF_CONFIG='{"cluster": {"worker": "a:1"}}')");
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("TF_CONFIG.cluster.worker")) << ran.text;
  const Ran task = doctor(R"(TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:1"]}}')");
  EXPECT_EQ(task.code, 1) << task.text;
  EXPECT_TRUE(task.says("which of its tasks this one is")) << task.text;
}

}  // namespace
