// SPDX-License-Identifier: Apache-2.0
//
// What is printed fits the terminal, and what callbacks print does not run into the bar.
#include "cohort/keras/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/progress_bar.h"
#include "cohort/testing/child.h"

namespace cohort::keras::internal {
namespace {

using keras::Logs;
using Kind = ProgressBar::Kind;

// A terminal as far as bars need one: rows of text in which "\r" and "\b" move the cursor.
struct Screen {
  std::vector<std::string> rows = {""};
  std::size_t column = 0;
  std::size_t widest = 0;
  std::string raw;

  void write(std::string_view text) {
    raw += text;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\r') {
        column = 0;
      } else if (c == '\b') {
        column -= column > 0 ? 1 : 0;
      } else if (c == '\n') {
        rows.emplace_back();
        column = 0;
      } else if (c == '\x1b') {
        i = text.find('m', i);
      } else if ((c & 0xC0) != 0x80) {  // the first byte of a character
        std::string& row = rows.back();
        if (row.size() <= column) row.resize(column + 1, ' ');
        row[column++] = (c & 0x80) != 0 ? '=' : c;
        widest = std::max(widest, column);
      }
    }
  }
  std::string row(std::size_t i) const {
    const std::string& text = rows.at(i);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }
  Console console() {
    return {[this](std::string_view text) { write(text); }, [this] { return now += 1; }};
  }
  double now = 0;
};

Logs long_logs() {
  Logs logs;
  for (const char* name : {"accuracy", "loss", "mean_absolute_error"}) logs.set(name, 0.5);
  return logs;
}

TEST(Bars, RunningOnesStayOnOneLineOfTheTerminal) {
  for (const int64_t columns : {30, 60, 80, 200}) {
    Screen screen;
    ProgressBar bar({.target = 100, .console = screen.console(), .terminal = {.columns = columns}});
    for (int64_t step = 1; step <= 5; ++step) bar.update(step, long_logs(), Kind::kRunning);
    EXPECT_LT(screen.widest, static_cast<std::size_t>(columns));
    bar.update(100, long_logs(), Kind::kFinal);
    EXPECT_NE(screen.row(0).find("mean_absolute_error: 0.5000"), std::string::npos);
    EXPECT_EQ(screen.rows.size(), 2U);
  }
}

TEST(Bars, WithoutColoursOrCursor) {
  Screen plain;
  ProgressBar bar({.target = 2, .console = plain.console(), .terminal = {.colours = false}});
  bar.update(1, long_logs(), Kind::kRunning);
  EXPECT_EQ(plain.raw.find('\x1b'), std::string::npos);
  EXPECT_NE(plain.raw.find('\r'), std::string::npos);

  Screen dumb;
  ProgressBar last(
      {.target = 2, .console = dumb.console(), .terminal = {.cursor = false, .colours = false}});
  last.update(1, long_logs(), Kind::kRunning);
  last.hide();
  EXPECT_EQ(dumb.raw, "");
  last.update(2, long_logs(), Kind::kFinal);
  EXPECT_EQ(dumb.raw.find_first_of("\r\b\x1b"), std::string::npos) << dumb.raw;
  EXPECT_EQ(dumb.rows.size(), 2U);
  EXPECT_EQ(dumb.row(0).substr(0, 5), "2/2 =");
}

TEST(Bars, LeaveTheirLineToWhoeverPrints) {
  Screen screen;
  ProgressBar bar({.target = 3, .console = screen.console()});
  bar.update(1, long_logs(), Kind::kRunning);
  bar.hide();
  EXPECT_EQ(screen.row(0), "");
  screen.write("mine\n");
  bar.show_again();
  EXPECT_EQ(screen.row(0), "mine");
  EXPECT_EQ(screen.row(1).substr(0, 3), "1/3");
  bar.hide();  // and nobody prints
  bar.update(2, long_logs(), Kind::kRunning);
  EXPECT_EQ(screen.row(1).substr(0, 3), "2/3");
  bar.hide();
  screen.write("more\n");
  bar.update(3, long_logs(), Kind::kFinal);
  EXPECT_EQ(screen.row(1), "more");
  EXPECT_EQ(screen.row(2).substr(0, 3), "3/3");
  bar.close();
  EXPECT_EQ(screen.rows.size(), 4U);
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Environment() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string before_;
};

// This process's standard output is a terminal while it lives; what was written comes back.
class TerminalOutput {
 public:
  TerminalOutput() : control_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    if (control_ < 0 || ::grantpt(control_) != 0 || ::unlockpt(control_) != 0) return;
    const int screen = ::open(::ptsname(control_), O_RDWR | O_NOCTTY);
    if (screen < 0) return;
    const winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(screen, TIOCSWINSZ, &size);
    termios raw{};
    ::tcgetattr(screen, &raw);
    ::cfmakeraw(&raw);  // bytes as they are written
    ::tcsetattr(screen, TCSANOW, &raw);
    ::dup2(screen, STDOUT_FILENO);
    ::close(screen);
    reader_ = std::jthread([this] {
      char bytes[4096];
      for (ssize_t got = 0; (got = ::read(control_, bytes, sizeof(bytes))) > 0;) {
        text_.append(bytes, static_cast<std::size_t>(got));
      }
    });
  }
  ~TerminalOutput() { finish(); }
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

  std::string finish() {
    if (before_ >= 0) {
      std::fflush(stdout);
      ::dup2(before_, STDOUT_FILENO);  // the terminal's last user is gone: the reader ends
      ::close(std::exchange(before_, -1));
      if (reader_.joinable()) reader_.join();
      ::close(control_);
    }
    return text_;
  }

 private:
  int control_;
  int before_;
  std::string text_;
  std::jthread reader_;
};

struct Printer : keras::CallbackBase {
  void on_train_batch_end(int64_t, Logs&) override { print("trained"); }
  void on_epoch_end(int, Logs&) override { print("epoch"); }
  void on_test_batch_end(int64_t, Logs&) override { print("tested"); }
  void on_predict_batch_end(int64_t) override { print("predicted"); }
  static void print(const char* what) { std::printf("%s\n", what), std::fflush(stdout); }
};

std::string output_of_training_in(const char* variable, const char* value) {
  const Environment xterm("TERM", "xterm");
  const Environment plain("NO_COLOR", "");
  const Environment given(variable, value);
  keras::Sequential model({keras::Dense(1)});
  model.compile({.optimizer = keras::SGD({.learning_rate = 0.1}), .loss = "mse"});
  const Tensor x = ones({6, 2});
  const Tensor y = ones({6, 1});
  const keras::Verbose bar = keras::Verbose::kBar;
  const std::vector<keras::Callback> callbacks = {std::make_shared<Printer>()};
  TerminalOutput output;
  model.fit(x, y, {.epochs = 2, .batch_size = 2, .callbacks = callbacks, .verbose = bar});
  model.evaluate(x, y, {.batch_size = 2, .callbacks = callbacks, .verbose = bar});
  model.predict(x, {.batch_size = 2, .callbacks = callbacks, .verbose = bar});
  return output.finish();
}

TEST(Bars, OfFitEvaluateAndPredictLeaveTheirLineToCallbacks) {
  Screen screen;
  screen.write(output_of_training_in("TERM", "xterm"));
  std::map<std::string, int> rows;
  for (std::size_t i = 0; i < screen.rows.size(); ++i) ++rows[screen.row(i)];
  EXPECT_EQ(rows["trained"], 6) << screen.raw;
  EXPECT_EQ(rows["epoch"], 2) << screen.raw;
  EXPECT_EQ(rows["tested"], 3) << screen.raw;
  EXPECT_EQ(rows["predicted"], 3) << screen.raw;
  EXPECT_NE(screen.raw.find('\x1b'), std::string::npos);
  EXPECT_NE(screen.raw.find('\r'), std::string::npos);

  const std::string plain = output_of_training_in("NO_COLOR", "1");
  EXPECT_EQ(plain.find('\x1b'), std::string::npos) << plain;
  EXPECT_NE(plain.find("3/3"), std::string::npos) << plain;

  const std::string dumb = output_of_training_in("TERM", "dumb");
  EXPECT_EQ(dumb.find_first_of("\r\b\x1b"), std::string::npos) << dumb;
  EXPECT_NE(dumb.find("3/3"), std::string::npos) << dumb;
}

TEST(CallbackLists, SayWhetherTheyMayPrintInBatches) {
  struct Epochs : keras::CallbackBase {};
  struct Batches : keras::CallbackBase {
    void on_train_batch_end(int64_t, Logs&) override {}
  };
  keras::Sequential model;
  for (const bool may : {false, true}) {
    CallbackList list;
    if (may) {
      list.add(std::make_shared<Batches>(), model);
    } else {
      list.add(std::make_shared<Epochs>(), model);
    }
    EXPECT_TRUE(list.may_print_in_batches());  // nobody knows yet
    Logs logs;
    list.call(&keras::CallbackBase::on_train_batch_begin, 0);
    list.call(&keras::CallbackBase::on_train_batch_end, 0, logs);
    EXPECT_EQ(list.may_print_in_batches(), may);
  }
}

// What the environment says of a terminal; of none nothing can be shown, whatever it says.
TEST(Terminals, AreAsTheEnvironmentSays) {
  EXPECT_EQ(testing::status_of_child([] {
              const int control = ::posix_openpt(O_RDWR | O_NOCTTY);
              if (control < 0 || ::grantpt(control) != 0 || ::unlockpt(control) != 0) return 1;
              const int screen = ::open(::ptsname(control), O_RDWR | O_NOCTTY);
              if (screen < 0 || ::dup2(screen, STDOUT_FILENO) < 0) return 2;
              const winsize size = {.ws_row = 24, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
              if (::ioctl(screen, TIOCSWINSZ, &size) != 0) return 3;
              ::unsetenv("NO_COLOR"), ::unsetenv("COLUMNS"), ::setenv("TERM", "xterm", 1);
              if (!terminal().cursor || !terminal().colours || terminal().columns != 77) return 4;
              ::setenv("NO_COLOR", "", 1);
              if (!terminal().colours) return 5;
              ::setenv("NO_COLOR", "1", 1);
              if (!terminal().cursor || terminal().colours) return 6;
              ::unsetenv("NO_COLOR"), ::setenv("TERM", "dumb", 1);
              if (terminal().cursor || terminal().colours) return 7;
              ::setenv("TERM", "xterm", 1);
              const int file = ::open("/dev/null", O_WRONLY);
              if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0) return 8;
              return terminal().cursor || terminal().colours || terminal().columns != 0 ? 9 : 0;
            }),
            0);
}

TEST(Summary, IsAsWideAsTheTerminal) {
  keras::Sequential model({keras::InputLayer({28, 28}), keras::Flatten(),
                           keras::Dense(256, {.name = "a_long_name_of_a_dense_layer_in_a_model"})});
  // Inner widths of Keras's columns.
  const std::vector<std::pair<const char*, std::vector<std::size_t>>> lines = {
      {"40", {13, 8, 5}},   {"60", {22, 15, 9}},   {"64", {24, 17, 9}},  {"70", {26, 19, 11}},
      {"80", {31, 22, 13}}, {"100", {36, 27, 15}}, {"200", {36, 27, 15}}};
  for (const auto& [columns, widths] : lines) {
    const Environment environment("COLUMNS", columns);
    const std::string text = model.summary_text();
    std::string rule = "\u250f";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) rule += "\u2533";
      for (std::size_t n = 0; n < widths[i] + 2; ++n) rule += "\u2501";
    }
    EXPECT_NE(text.find(rule + "\u2513\n"), std::string::npos) << columns << '\n' << text;
  }
}

}  // namespace
}  // namespace cohort::keras::internal
