// SPDX-License-Identifier: Apache-2.0
//
// What tasks write, line by line: to the console, each with the name of who wrote it, and into
// files.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohortrun {

enum class Prefix { kTask, kMpi, kTorchrun, kNone };

/// Which of a task's two streams, 1 (output) and 2 (errors), go where; 3 is both.
/// TF: torchrun's --redirects and --tee.
struct OutputOptions {
  Prefix prefix = Prefix::kTask;
  std::string log_dir = {};              ///< Empty: no files.
  int redirects = 0;                     ///< Streams that go into files only.
  int tee = 0;                           ///< Streams that go into files as well.
  std::map<int, int> redirects_of = {};  ///< By local rank, before `redirects`.
  std::map<int, int> tee_of = {};
  std::vector<int> shown = {};  ///< Local ranks that the console shows; empty: all tasks.
};

/// Where the streams of one task go in one attempt.
struct OutputPlace {
  std::string name = {};       ///< "worker 1".
  std::string directory = {};  ///< For its files.
  int rank = -1;
  int local_rank = -1;
};

/// Standard output (1) or standard error (2). What nobody reads waits here, so that cohortrun hears
/// signals and other hosts meanwhile.
class Console {
 public:
  static Console& of(int stream);
  void write(std::string_view text);

  /// Writes what can be written now, to both. Blocks: never.
  static void flush();
  static bool any_waits();
  /// So much waits that tasks should wait, too.
  static bool any_is_full();
  /// From here on what is too much is left out.
  static void leave_out();
  /// Writes the rest. wake: a descriptor that can be read when gives_up() is to be asked again.
  /// Blocks: while nobody reads.
  static void finish(int wake, const std::function<bool()>& gives_up);
  static void add_polled(std::vector<pollfd>* polled);

 private:
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;
  explicit Console(int fd) : fd_(fd) {}
  void write_some();

  const int fd_;
  std::string waiting_;
  std::size_t written_ = 0;  // of it
  bool leaves_out_ = false;
};

/// One stream of one task.
class LineOutput {
 public:
  static constexpr std::size_t kTailLines = 10;

  /// stream: 1 or 2. Errors: std::runtime_error if a file cannot be made.
  LineOutput(int stream, const OutputPlace& place, const OutputOptions& options);
  ~LineOutput();
  LineOutput(LineOutput&& other) noexcept;
  LineOutput& operator=(LineOutput&&) = delete;

  /// Passes on whole lines; says once if its file takes no more. Blocks: never, but for a disk.
  void write(std::string_view bytes);
  /// Passes on a last line without its end.
  void finish();
  /// The last lines that were written.
  const std::deque<std::string>& tail() const { return tail_; }

 private:
  void pass_on_lines();

  int console_;  // -1: not there
  int file_ = -1;
  std::string path_;     // of file_
  bool is_cut_ = false;  // not all is in it
  std::string prefix_;
  std::string unwritten_;  // the beginning of a line
  std::deque<std::string> tail_;
};

}  // namespace cohortrun
