// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/progress_bar.h"

#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/strings.h"

namespace cohort::keras::internal {
namespace {

using keras::Logs;
using keras::Verbose;
using Kind = ProgressBar::Kind;

// What a bar writes at times that the test sets.
struct Screen {
  std::string text;
  double now = 100;
  Console console() {
    return {[this](std::string_view part) { text += part; }, [this] { return now; }};
  }
  std::string take() { return std::exchange(text, ""); }
};

std::string cells(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "\u2501";
  return out;
}

Logs logs_of(double accuracy, double loss) {
  Logs logs;
  logs.set("accuracy", accuracy);
  logs.set("loss", loss);
  return logs;
}

TEST(ProgressBar, WritesTheBytesThatKerasWrites) {
  Screen screen;
  ProgressBar bar({.target = 4, .console = screen.console()});
  screen.now += 0.5;
  bar.update(1, logs_of(0.25, 2.5), Kind::kRunning);
  EXPECT_EQ(screen.take(),
            str_cat("\r\x1b[1m1/4\x1b[0m \x1b[32m", cells(5), "\x1b[0m\x1b[37m", cells(15),
                    "\x1b[0m \x1b[1m1s\x1b[0m 500ms/step - accuracy: 0.2500 - loss: 2.5000"));
  std::size_t width =
      4 + 20 + std::string(" 1s 500ms/step - accuracy: 0.2500 - loss: 2.5000").size();

  screen.now += 0.06;  // for the two steps after the first one
  bar.update(3, logs_of(0.5, 1e-3), Kind::kRunning);
  EXPECT_EQ(screen.take(),
            str_cat(std::string(width, '\b'), "\r\x1b[1m3/4\x1b[0m \x1b[32m", cells(15),
                    "\x1b[0m\x1b[37m", cells(5),
                    "\x1b[0m \x1b[1m0s\x1b[0m 30ms/step - accuracy: 0.5000 - loss: 1.0000e-03"));
  width = 4 + 20 + std::string(" 0s 30ms/step - accuracy: 0.5000 - loss: 1.0000e-03").size();

  screen.now += 2;  // the line gets shorter by two
  bar.update(4, logs_of(1, -2), Kind::kFinal);
  EXPECT_EQ(screen.take(),
            str_cat(std::string(width, '\b'), "\r\x1b[1m4/4\x1b[0m \x1b[32m", cells(20),
                    "\x1b[0m\x1b[37m\x1b[0m \x1b[1m3s\x1b[0m 687ms/step - accuracy: 1.0000 - loss: "
                    "-2.0000  \n"));
}

TEST(ProgressBar, PrintsAtMostEveryTwentiethOfASecond) {
  Screen screen;
  int reads = 0;
  Logs logs;
  logs.set("loss", [&] {
    ++reads;
    return scalar(1);
  });
  ProgressBar bar({.target = 100, .console = screen.console()});
  for (int step = 1; step <= 99; ++step) {
    screen.now += 0.01;
    bar.update(step, logs, Kind::kRunning);
  }
  EXPECT_GE(reads, 16);
  EXPECT_LE(reads, 20);
  bar.update(100, logs, Kind::kFinal);
  EXPECT_EQ(screen.text.back(), '\n');
}

TEST(ProgressBar, ShowsTheTimeLeftAsKerasDoes) {
  const auto left = [](double per_step, int64_t steps) {
    Screen screen;
    ProgressBar bar({.target = steps + 1, .console = screen.console()});
    screen.now += per_step;
    bar.update(1, {}, Kind::kRunning);
    const std::size_t end = screen.text.rfind("\x1b[0m");
    const std::size_t begin = screen.text.rfind("\x1b[1m", end) + 4;
    return screen.text.substr(begin);
  };
  EXPECT_EQ(left(1, 60), "60s\x1b[0m 1s/step");
  EXPECT_EQ(left(1, 61), "1:01\x1b[0m 1s/step");
  EXPECT_EQ(left(2, 1830), "1:01:00\x1b[0m 2s/step");
  EXPECT_EQ(left(0.25, 2), "0s\x1b[0m 250ms/step");
  EXPECT_EQ(left(0.000125, 2), "0s\x1b[0m 125us/step");
  EXPECT_EQ(left(0, 2), "0s\x1b[0m 0s/step");
}

TEST(ProgressBar, CountsWhereTheNumberOfStepsIsUnknown) {
  Screen screen;
  ProgressBar bar({.console = screen.console()});
  screen.now += 2;
  bar.update(2, {}, Kind::kRunning);
  EXPECT_EQ(screen.take(), "\r      2/Unknown \x1b[1m2s\x1b[0m 1s/step");
  bar.set_target(2);
  bar.update(2, {}, Kind::kFinal);
  EXPECT_NE(screen.take().find("2/2"), std::string::npos);
}

TEST(ProgressBar, WritesOneLineAnEpochWithoutControlCharacters) {
  Screen screen;
  ProgressBar bar({.target = 1875, .verbose = Verbose::kLine, .console = screen.console()});
  screen.now += 1;
  bar.update(1, logs_of(0.1, 2), Kind::kRunning);
  screen.now += 15;
  EXPECT_EQ(screen.take(), "");
  bar.update(1875, logs_of(0.09375, -2.3377), Kind::kFinal);
  EXPECT_EQ(screen.take(), "1875/1875 - 16s - 8ms/step - accuracy: 0.0938 - loss: -2.3377e+00\n");
}

TEST(ProgressBar, WritesNothingWhenSilent) {
  Screen screen;
  ProgressBar bar({.target = 2, .verbose = Verbose::kSilent, .console = screen.console()});
  bar.update(1, logs_of(0, 0), Kind::kRunning);
  bar.update(2, logs_of(0, 0), Kind::kFinal);
  bar.close();
  EXPECT_EQ(screen.text, "");
}

TEST(ProgressBar, KeepsTheOrderInWhichValuesCameAndWritesOddOnes) {
  Screen screen;
  ProgressBar bar({.target = 2, .console = screen.console()});
  Logs logs;
  logs.set("loss", std::numeric_limits<double>::quiet_NaN());
  logs.set("zeta", std::numeric_limits<double>::infinity());
  bar.update(1, logs, Kind::kRunning);
  Logs all = logs;
  all.set("val_loss", 0.0);
  bar.update(2, all.sorted(), Kind::kFinal);
  EXPECT_NE(screen.text.find(" - loss: nan - zeta: inf - val_loss: 0.0000e+00\n"),
            std::string::npos)
      << screen.text;
}

TEST(ProgressBar, EndsALineThatWasLeftOpen) {
  Screen screen;
  ProgressBar bar({.target = 2, .console = screen.console()});
  bar.close();
  EXPECT_EQ(screen.take(), "");
  bar.update(1, {}, Kind::kRunning);
  bar.close();
  EXPECT_EQ(screen.take().back(), '\n');
}

}  // namespace
}  // namespace cohort::keras::internal
