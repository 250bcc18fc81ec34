// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

// A line is passed on in parts of this length at most.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;
constexpr std::size_t kLongestTailLine = 400;

// 0, or why the rest was not written.
int write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t now = ::write(to, text.data(), text.size());
    if (now > 0) text.remove_prefix(static_cast<std::size_t>(now));
    if (now < 0 && errno != EINTR) return errno;
  }
  return 0;
}

std::string log_path(int stream, const std::string& directory) {
  return str_cat(directory, stream == 1 ? "/stdout.log" : "/stderr.log");
}

std::string prefix_of(int stream, const OutputPlace& place, Prefix prefix) {
  const std::string rank = std::to_string(place.rank);
  switch (prefix) {
    case Prefix::kNone:
      return {};
    case Prefix::kMpi:
      if (place.rank >= 0) return str_cat("[1,", rank, stream == 1 ? "]<stdout>:" : "]<stderr>:");
      break;
    case Prefix::kTorchrun:
      if (place.local_rank >= 0) return str_cat("[default", place.local_rank, "]:");
      break;
    case Prefix::kTask:
      break;
  }
  return str_cat("[", place.name, "] ");
}

int open_log(int stream, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::string path = log_path(stream, directory);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    throw std::runtime_error(
        str_cat("expected to write to ", path, " (--log-dir), got: ", std::strerror(errno)));
  }
  return fd;
}

int streams_of(int rank, int all, const std::map<int, int>& some) {
  const auto found = some.find(rank);
  return found == some.end() ? all : found->second;
}

}  // namespace

Console& Console::of(int stream) {
  static Console output(STDOUT_FILENO);
  static Console errors(STDERR_FILENO);
  return stream == 1 ? output : errors;
}

void Console::write(std::string_view text) {
  if (leaves_out_ && waiting_.size() > 2 * kMostWaiting) return;
  waiting_ += text;
  write_some();
}

// The descriptor is others', too, so it stays one that blocks: but not for what a pipe has room for
// as soon as it says that it can be written to.
void Console::write_some() {
  while (written_ < waiting_.size()) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const std::size_t bytes = std::min<std::size_t>(waiting_.size() - written_, PIPE_BUF);
    const ssize_t now = ::write(fd_, waiting_.data() + written_, bytes);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && errno == EAGAIN) break;
    // Where nobody reads any more, all is read.
    written_ = now < 0 ? waiting_.size() : written_ + static_cast<std::size_t>(now);
  }
  if (written_ < waiting_.size() && written_ < kMostWaiting / 2) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

void Console::flush() {
  for (const int stream : {1, 2}) of(stream).write_some();
}

bool Console::any_waits() { return !of(1).waiting_.empty() || !of(2).waiting_.empty(); }

bool Console::any_is_full() {
  return of(1).waiting_.size() > kMostWaiting || of(2).waiting_.size() > kMostWaiting;
}

void Console::leave_out() {
  for (const int stream : {1, 2}) of(stream).leaves_out_ = true;
}

void Console::add_polled(std::vector<pollfd>* polled) {
  for (const int stream : {1, 2}) {
    const Console& console = of(stream);
    if (console.waiting_.empty()) continue;
    polled->push_back({.fd = console.fd_, .events = POLLOUT, .revents = 0});
  }
}

void Console::finish(int wake, const std::function<bool()>& gives_up) {
  while (any_waits() && !gives_up()) {
    std::vector<pollfd> polled = {{.fd = wake, .events = POLLIN, .revents = 0}};
    add_polled(&polled);
    constexpr int kMilliseconds = 100;
    ::poll(polled.data(), polled.size(), kMilliseconds);
    flush();
  }
}

LineOutput::LineOutput(int stream, const OutputPlace& place, const OutputOptions& options)
    : console_(stream == 1 ? STDOUT_FILENO : STDERR_FILENO),
      prefix_(prefix_of(stream, place, options.prefix)) {
  const auto& shown = options.shown;
  if (!shown.empty() && std::find(shown.begin(), shown.end(), place.local_rank) == shown.end()) {
    console_ = -1;
  }
  if (place.directory.empty()) return;
  const int only = streams_of(place.local_rank, options.redirects, options.redirects_of);
  const int also = streams_of(place.local_rank, options.tee, options.tee_of);
  if (((only | also) & stream) != 0) {
    file_ = open_log(stream, place.directory);
    path_ = log_path(stream, place.directory);
  }
  if ((only & ~also & stream) != 0) console_ = -1;
}

LineOutput::LineOutput(LineOutput&& other) noexcept
    : console_(other.console_),
      file_(std::exchange(other.file_, -1)),
      path_(std::move(other.path_)),
      prefix_(std::move(other.prefix_)),
      unwritten_(std::move(other.unwritten_)),
      tail_(std::move(other.tail_)) {}

LineOutput::~LineOutput() {
  if (file_ >= 0) ::close(file_);
}

void LineOutput::write(std::string_view bytes) {
  const int error = file_ >= 0 ? write_all(file_, bytes) : 0;
  if (error != 0 && !std::exchange(is_cut_, true)) {
    Console::of(2).write(str_cat("cohortrun: failed to write to ", path_, " (--log-dir): ",
                                 std::strerror(error), "; it lacks lines from here on\n"));
  }
  unwritten_ += bytes;
  pass_on_lines();
}

void LineOutput::pass_on_lines() {
  std::string out;
  std::size_t begin = 0;
  const auto line_until = [&](std::size_t end) {
    const std::string line = unwritten_.substr(begin, end - begin);
    out += prefix_ + line + "\n";
    tail_.push_back(line.substr(0, kLongestTailLine));
    if (tail_.size() > kTailLines) tail_.pop_front();
  };
  for (;;) {
    const std::size_t end = unwritten_.find('\n', begin);
    if (end == std::string::npos) break;
    line_until(end);
    begin = end + 1;
  }
  if (unwritten_.size() - begin > kLongestLine) {
    line_until(unwritten_.size());
    begin = unwritten_.size();
  }
  unwritten_.erase(0, begin);
  if (console_ >= 0) Console::of(console_).write(out);
}

void LineOutput::finish() {
  if (unwritten_.empty()) return;
  unwritten_ += '\n';
  pass_on_lines();
}

}  // namespace cohortrun
