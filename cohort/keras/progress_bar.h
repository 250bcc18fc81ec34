// SPDX-License-Identifier: Apache-2.0
//
// Keras's progress bar, byte for byte; internal.
//
//   ProgressBar bar({.target = 1875, .verbose = Verbose::kBar});
//   bar.update(step + 1, logs, ProgressBar::Kind::kRunning);
//   bar.update(1875, logs, ProgressBar::Kind::kFinal);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/keras/callbacks/logs.h"
#include "cohort/keras/terminal.h"
#include "cohort/keras/verbose.h"

namespace cohort::keras::internal {

/// Where a bar writes, and what time it is there.
struct Console {
  std::function<void(std::string_view)> write = {};  ///< Empty: standard output, flushed.
  std::function<double()> now = {};                  ///< Seconds; empty: the steady clock.
};

struct ProgressBarOptions {
  std::optional<int64_t> target = {};  ///< Steps; without, a bare counter.
  keras::Verbose verbose = keras::Verbose::kBar;
  Console console = {};
  Terminal terminal = {};  ///< What the console can show.
};

/// Threads: bound to one thread.
class ProgressBar {
 public:
  enum class Kind { kRunning, kFinal };

  explicit ProgressBar(ProgressBarOptions options);

  /// Shows `current` of the target's steps. Running updates print at most every 0.05 s (and not at
  /// all with kLine, or where lines cannot be written over), cut to the terminal's width; logs are
  /// read only if they print.
  void update(int64_t current, const keras::Logs& logs, Kind kind);
  void set_target(int64_t target) { target_ = target; }
  bool has_target() const { return target_.has_value(); }
  /// Takes an open line off the screen, so that something else can be printed in its place; the
  /// next update, or show_again(), puts it back below.
  void hide();
  void show_again();
  /// Ends a line that running updates left open.
  void close();

 private:
  struct Line;  // what is seen of a text
  void remember_order(const keras::Logs& logs);
  double seconds_per_step(int64_t current, double now);
  std::string bar_line(int64_t current, const keras::Logs& logs, Kind kind, double now,
                       double per_step);
  void add_values(const keras::Logs& logs, bool cut, Line& line) const;
  std::string final_line(int64_t current, const keras::Logs& logs, double now, double per_step);

  std::optional<int64_t> target_;
  const keras::Verbose verbose_;
  const Console console_;
  const Terminal terminal_;
  double start_ = 0;
  double last_print_ = 0;
  bool printed_ = false;
  bool hidden_ = false;
  std::string line_;  // the open one
  std::optional<double> after_first_step_;
  int64_t width_before_ = 0;        // of the last line, as it is seen
  std::vector<std::string> order_;  // of the values: as they came first
};

/// kAuto made concrete: by whether standard output is a terminal.
keras::Verbose resolve_verbose(keras::Verbose verbose);
/// Writes to standard output and flushes.
void print_out(std::string_view text);

}  // namespace cohort::keras::internal
