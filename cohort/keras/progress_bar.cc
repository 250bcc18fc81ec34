// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "cohort/base/strings.h"

namespace cohort::keras::internal {

namespace {

using keras::Logs;
using keras::Verbose;

constexpr int64_t kCells = 20;
constexpr int64_t kBesideCells = 32;  // columns for the counter and the times
constexpr double kInterval = 0.05;    // seconds
constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kSmall = 1e-3;  // values below read as 1.2345e-04

template <class... A>
std::string format(const char* pattern, A... args) {
  char buffer[128];
  const int length = std::snprintf(buffer, sizeof buffer, pattern, args...);
  return {buffer, static_cast<std::size_t>(std::clamp<int>(length, 0, sizeof buffer - 1))};
}

std::string value_text(double value, double size) {
  if (std::isnan(value)) return "nan";  // C has -nan as well
  return format(size > kSmall ? "%.4f" : "%.4e", value);
}

std::string counter_text(int64_t current, int64_t target) {
  const int digits = static_cast<int>(std::to_string(std::max<int64_t>(target, 1)).size());
  return format("%*lld/%lld", digits, static_cast<long long>(current),
                static_cast<long long>(target));
}

std::string eta_text(double eta) {
  const auto seconds = static_cast<long long>(eta);
  if (eta > kHour) {
    return format("%lld:%02lld:%02lld", seconds / 3600, seconds % 3600 / 60, seconds % 60);
  }
  if (eta > kMinute) return format("%lld:%02lld", seconds / 60, seconds % 60);
  return format("%llds", seconds);
}

std::string step_text(double seconds) {
  if (seconds >= 1 || seconds == 0) return format(" %.0fs/step", seconds);
  if (seconds >= 1e-3) return format(" %.0fms/step", seconds * 1e3);
  return format(" %.0fus/step", seconds * 1e6);
}

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kWhite = "\x1b[37m";

}  // namespace

// Counts what is seen: escape sequences have no width, a cell has one.
struct ProgressBar::Line {
  bool colours = true;
  std::string text = {};
  int64_t width = 0;

  void show(const std::string& ascii) {
    text += ascii;
    width += static_cast<int64_t>(ascii.size());
  }
  void show_in(const char* colour, const std::string& ascii) {
    if (!colours) return show(ascii);
    text += colour;
    show(ascii);
    text += "\x1b[0m";
  }
  void show_cells(const char* colour, const char* cell, int64_t count) {
    if (colours) text += colour;
    for (int64_t i = 0; i < count; ++i) text += cell;
    if (colours) text += "\x1b[0m";
    width += count;
  }
};

Verbose resolve_verbose(Verbose verbose) {
  if (verbose != Verbose::kAuto) return verbose;
  return terminal().cursor ? Verbose::kBar : Verbose::kLine;
}

void print_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

ProgressBar::ProgressBar(ProgressBarOptions options)
    : target_(options.target),
      verbose_(options.verbose),
      console_{options.console.write ? options.console.write : print_out,
               options.console.now ? options.console.now : [] {
                 return std::chrono::duration<double>(
                            std::chrono::steady_clock::now().time_since_epoch())
                     .count();
               }},
      terminal_(options.terminal),
      start_(console_.now()) {}

void ProgressBar::update(int64_t current, const Logs& logs, Kind kind) {
  const bool bar = verbose_ == Verbose::kBar;
  if (verbose_ == Verbose::kSilent) return;
  const double now = console_.now();
  const double per_step = seconds_per_step(current, now);
  if (kind == Kind::kRunning) {
    if (!bar || !terminal_.cursor) return;
    if (printed_ && now - last_print_ < kInterval) return show_again();
  }
  remember_order(logs);
  console_.write(bar ? bar_line(current, logs, kind, now, per_step)
                     : final_line(current, logs, now, per_step));
  last_print_ = now;
  printed_ = kind == Kind::kRunning;
  hidden_ = false;
}

void ProgressBar::hide() {
  if (!printed_ || hidden_) return;
  console_.write(str_cat("\r", std::string(static_cast<std::size_t>(width_before_), ' '), "\r"));
  hidden_ = true;
}

void ProgressBar::show_again() {
  if (!hidden_) return;
  console_.write(line_);
  hidden_ = false;
}

void ProgressBar::close() {
  if (printed_ && !hidden_) console_.write("\n");
  printed_ = false;
  hidden_ = false;
}

void ProgressBar::remember_order(const Logs& logs) {
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (std::find(order_.begin(), order_.end(), logs.name(i)) == order_.end()) {
      order_.push_back(logs.name(i));
    }
  }
}

// The first step, which builds and warms up, is left out once there are others.
double ProgressBar::seconds_per_step(int64_t current, double now) {
  if (current == 0) return 0;
  const double per_step = after_first_step_ && current > 1
                              ? (now - *after_first_step_) / static_cast<double>(current - 1)
                              : (now - start_) / static_cast<double>(current);
  if (current == 1) after_first_step_ = now;
  return per_step;
}

// With `cut`, no more than one line of the terminal holds: "\r" goes back in one line only.
void ProgressBar::add_values(const Logs& logs, bool cut, Line& line) const {
  for (const std::string& name : order_) {
    if (!logs.contains(name)) continue;
    const double value = logs.number(name);
    std::string part = " - " + name + ": " + value_text(value, std::abs(value));
    const int64_t room = terminal_.columns - 1 - line.width;
    if (cut && static_cast<int64_t>(part.size()) > room) {
      return line.show(part.substr(0, static_cast<std::size_t>(std::max<int64_t>(room, 0))));
    }
    line.show(part);
  }
}

std::string ProgressBar::bar_line(int64_t current, const Logs& logs, Kind kind, double now,
                                  double per_step) {
  Line line{.colours = terminal_.colours};
  if (target_) {
    line.show_in(kBold, counter_text(current, *target_));
    line.show(" ");
    const bool narrow = terminal_.columns > 0 && terminal_.columns < kCells + kBesideCells;
    const int64_t cells = narrow ? std::max<int64_t>(terminal_.columns - kBesideCells, 0) : kCells;
    const int64_t done =
        *target_ > 0 ? std::clamp<int64_t>(cells * current / *target_, 0, cells) : 0;
    if (done > 0) line.show_cells(kGreen, "\u2501", done);
    // Without colours the two must differ otherwise.
    line.show_cells(kWhite, terminal_.colours ? "\u2501" : "\u2500", cells - done);
  } else {
    line.show(format("%7lld/Unknown", static_cast<long long>(current)));
  }
  line.show(" ");
  const bool running = kind == Kind::kRunning;
  line.show_in(kBold, target_ && running
                          ? eta_text(per_step * static_cast<double>(*target_ - current))
                          : format("%.0fs", now - start_));
  line.show(step_text(per_step));
  add_values(logs, running && terminal_.columns > 0, line);
  if (!terminal_.cursor) return line.text + "\n";
  const auto before = static_cast<std::size_t>(width_before_);
  std::string text = std::string(before, '\b') + '\r' + line.text;
  if (width_before_ > line.width) text.append(before - static_cast<std::size_t>(line.width), ' ');
  if (!running) text += '\n';
  width_before_ = line.width;
  line_ = std::move(line.text);
  return text;
}

std::string ProgressBar::final_line(int64_t current, const Logs& logs, double now,
                                    double per_step) {
  std::string text = counter_text(current, target_.value_or(current));
  text += format(" - %.0fs", now - start_) + " -" + step_text(per_step);
  for (const std::string& name : order_) {
    if (!logs.contains(name)) continue;
    const double value = logs.number(name);
    text += " - " + name + ": " + value_text(value, value);  // as Keras: negative ones in 1e form
  }
  return text + "\n";
}

}  // namespace cohort::keras::internal
