// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's page in a real browser.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::testing::free_ports;
using cohort::testing::Job;
using cohort::testing::Process;

constexpr int kNoBrowser = 77;

TEST(Browser, ShowsTheTasksInTheirColoursAndTextsAsTexts) {
  const int port = free_ports(1).front();
  const std::string file = str_cat(::testing::TempDir(), "browser_", ::getpid(), "_ends");
  const std::string picture = str_cat(::testing::TempDir(), "status_page.png");
  const Job job({PROGRAM, std::to_string(port), file}, 1);
  const auto chief = job.start("chief", 0);
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1);
  ASSERT_TRUE(chief->wait_for("refused")) << chief->text();
  killed->signal(SIGKILL);
  const std::string address = job.address_of_chief();
  std::string status;
  for (int i = 0; i < 300 && status.find("\"lost\"") == std::string::npos; ++i) {
    Process ask({COHORT_TOOL, "status", "--address", address, "--json"});
    ask.wait();
    status = ask.text();
    ::usleep(100'000);
  }

  Process look({"python3", LOOK_AT_PAGE, str_cat("http://127.0.0.1:", port, "/"), picture});
  const int code = look.wait(std::chrono::seconds(120));
  const std::string text = look.text();
  std::ofstream(file) << "end\n";
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  ::unlink(file.c_str());
  if (code == kNoBrowser) GTEST_SKIP() << text;
  ASSERT_EQ(code, 0) << text;
  for (const char* part :
       {"<td class=\"alive\">alive</td>", "<td class=\"lost\">lost</td>", "<td>ps 0</td>",
        "<dt>failed</dt><dd>1</dd>", "refuse has thrown: &lt;b&gt;no&lt;/b&gt;  [31m&amp; such"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(text.find("<b>no</b>"), std::string::npos) << text;
}

}  // namespace
