// SPDX-License-Identifier: Apache-2.0
//
// What a chief of parameter servers says: what fit prints, and what it is warned of.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/cohort.h"
#include "cohort/coordinator/test_cluster.h"

namespace cohort::keras {
namespace {

using cohort::testing::TestCluster;

Dataset make_ones(const InputContext&) {
  return Dataset::from_tensors({ones({8, 1}), ones({8, 1})}).repeat();
}
COHORT_REGISTER_FUNCTION(make_ones);

// What the body writes, for whom standard output is a terminal; none: there are no terminals here.
std::optional<std::string> on_a_terminal(const std::function<void()>& body) {
  const int control = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (control < 0) return {};
  const bool is_open = ::grantpt(control) == 0 && ::unlockpt(control) == 0;
  const int screen = is_open ? ::open(::ptsname(control), O_RDWR | O_NOCTTY) : -1;
  if (screen < 0) {
    ::close(control);
    return {};
  }
  termios raw{};
  ::tcgetattr(screen, &raw);
  ::cfmakeraw(&raw);
  ::tcsetattr(screen, TCSANOW, &raw);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(screen, STDOUT_FILENO);
  body();
  std::fflush(stdout);
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(screen);  // behind what was written there is an error now, no more waiting
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t got = 0; (got = ::read(control, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  ::close(control);
  return text;
}

// semantics 7.1
TEST(ParameterServerChief, ARunInTheCoordinatorsOwnProcessIsTold) {
  const TestCluster cluster(1, 1);
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())});
  clear_session();
  const auto scope = strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const auto said = [](const std::function<void()>& body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string of_fit = said([&] {
    model.fit(DatasetCreator(make_ones), {.verbose = Verbose::kSilent, .steps_per_epoch = 2});
  });
  EXPECT_EQ(of_fit.find("[strategy.run]"), std::string::npos) << of_fit;
  const auto run = [&] { strategy.run([] { return ones({2}); }); };
  const std::string first = said(run);
  EXPECT_NE(first.find("coordinator's own process"), std::string::npos) << first;
  EXPECT_NE(first.find("ClusterCoordinator::schedule()"), std::string::npos) << first;
  EXPECT_EQ(said(run).find("[strategy.run]"), std::string::npos) << "once is enough";
}

TEST(ParameterServerChief, T21_OnATerminalALineIsPrinted) {
  const TestCluster cluster(1, 1);
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())});
  clear_session();
  const auto scope = strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  ::setenv("TERM", "xterm", 1);
  const std::optional<std::string> text =
      on_a_terminal([&] { model.fit(DatasetCreator(make_ones), {.steps_per_epoch = 2}); });
  if (!text) GTEST_SKIP() << "no pseudo-terminal";
  EXPECT_NE(text->find("loss"), std::string::npos) << *text;
  EXPECT_EQ(text->find_first_of("\r\b"), std::string::npos) << "a bar: " << *text;
}

}  // namespace
}  // namespace cohort::keras
