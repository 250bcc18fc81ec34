// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace cohortrun {
namespace {

// A line is passed on in parts of this length at most.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;

void write_all(int to, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t now = ::write(to, text.data() + at, text.size() - at);
    if (now > 0) at += static_cast<std::size_t>(now);
    if (now < 0 && errno != EINTR) return;  // nobody reads any more
  }
}

}  // namespace

PrefixedOutput::PrefixedOutput(int from, int to, std::string prefix)
    : from_(from), to_(to), prefix_(std::move(prefix)) {
  ::fcntl(from_, F_SETFL, O_NONBLOCK);
}

PrefixedOutput::PrefixedOutput(PrefixedOutput&& other) noexcept
    : from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      unwritten_(std::move(other.unwritten_)) {}

PrefixedOutput::~PrefixedOutput() {
  if (from_ >= 0) ::close(from_);
}

void PrefixedOutput::write_lines() {
  std::string out;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = unwritten_.find('\n', begin);
    if (end == std::string::npos) break;
    out += prefix_ + unwritten_.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  unwritten_.erase(0, begin);
  if (unwritten_.size() > kLongestLine) out += prefix_ + std::exchange(unwritten_, "") + "\n";
  write_all(to_, out);
}

void PrefixedOutput::pass_on() {
  std::array<char, 16384> bytes;
  while (from_ >= 0) {
    const ssize_t got = ::read(from_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return finish();
    unwritten_.append(bytes.data(), static_cast<std::size_t>(got));
    write_lines();
  }
}

void PrefixedOutput::finish() {
  if (from_ < 0) return;
  if (!unwritten_.empty()) {
    unwritten_ += '\n';
    write_lines();
  }
  ::close(std::exchange(from_, -1));
}

}  // namespace cohortrun
