// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "cohort/base/strings.h"

namespace cohort::internal::coordinator {
namespace {

// Standard error is read by a thread while it lives.
class StandardError {
 public:
  StandardError() : before_(::dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return;
    ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);  // the reader writes its stack here, too
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    reader_ = std::thread([this, from = ends[0]] {
      std::array<char, 4096> bytes{};
      for (ssize_t got = 0; (got = ::read(from, bytes.data(), bytes.size())) > 0;) {
        const std::lock_guard lock(mutex_);
        text_.append(bytes.data(), static_cast<std::size_t>(got));
        changed_.notify_all();
      }
      ::close(from);
    });
  }
  ~StandardError() { finish(); }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  void wait_for(const std::string& what) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return text_.find(what) != std::string::npos; });
  }
  std::string finish() {
    if (reader_.joinable()) {
      ::dup2(before_, STDERR_FILENO);  // the pipe's last end
      ::close(before_);
      reader_.join();
    }
    return text_;
  }

 private:
  const int before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::thread reader_;
};

std::string title_of_this_thread() { return str_cat("thread ", ::syscall(SYS_gettid), ":\n"); }

TEST(Watchdog, WritesTheStacksOfAllThreads) {
  std::string other;
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
  std::thread waits([&] {
    std::unique_lock lock(mutex);
    other = title_of_this_thread();
    changed.notify_all();
    changed.wait(lock, [&] { return ends; });
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !other.empty(); });
  }
  StandardError error;
  dump_all_stacks();
  const std::string text = error.finish();
  {
    const std::lock_guard lock(mutex);
    ends = true;
    changed.notify_all();
  }
  waits.join();
  for (const std::string& title : {title_of_this_thread(), other}) {
    const auto at = text.find(title);
    ASSERT_NE(at, std::string::npos) << title << text;
    EXPECT_NE(text[at + title.size()], 't') << "frames follow: " << text;
  }
}

TEST(Watchdog, BarksWhenNothingHappens) {
  StandardError error;
  {
    const Watchdog watchdog(0.01);
    error.wait_for("no function of the coordinator has ended for 0.01 s");
    error.wait_for(title_of_this_thread());
  }
  EXPECT_NE(error.finish().find("all threads are here"), std::string::npos);
}

TEST(Watchdog, OfNoSecondsThereIsNone) {
  StandardError error;
  {
    Watchdog watchdog(-1);
    watchdog.reset();
    Watchdog far(3600);
    far.reset();
  }  // which does not wait
  EXPECT_EQ(error.finish(), "");
}

}  // namespace
}  // namespace cohort::internal::coordinator
