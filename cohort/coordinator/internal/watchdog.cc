// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/watchdog.h"

#include <dirent.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cohort/base/logging.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

// A real-time signal that no library is known to take.
int stack_signal() { return SIGRTMIN + 9; }

::sem_t g_written;              // a handler has written its thread's stack
std::atomic<pid_t> g_asked{0};  // the thread that is waited for

pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void write_stack(int /*signal*/) {
  if (g_asked.load() != this_thread()) return;  // it comes late
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  ::sem_post(&g_written);
}

std::vector<pid_t> all_threads() {
  std::vector<pid_t> out;
  ::DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return out;
  while (const ::dirent* entry = ::readdir(tasks)) {
    const auto id = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (id > 0) out.push_back(id);
  }
  ::closedir(tasks);
  return out;
}

// The handler stays: a thread that does not run now, as a disk stands still, has its signal later.
void install_handler() {
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), 1);  // loads what it needs here, not in a handler
  ::sem_init(&g_written, 0, 0);
  struct sigaction action {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
}

void wait_a_second() {
  timespec limit{};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 1;
  while (::sem_timedwait(&g_written, &limit) != 0 && errno == EINTR) {
  }
}

}  // namespace

void dump_all_stacks() {
  static base::Mutex mutex;
  const base::MutexLock lock(mutex);
  static const bool installed = (install_handler(), true);
  static_cast<void>(installed);
  for (const pid_t thread : all_threads()) {
    const std::string title = str_cat("thread ", thread, ":\n");
    if (::write(STDERR_FILENO, title.data(), title.size()) < 0) break;
    while (::sem_trywait(&g_written) == 0) {  // of one that came late
    }
    g_asked = thread;
    if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) == 0) wait_a_second();
    g_asked = 0;
  }
}

Watchdog::Watchdog(double seconds) : seconds_(seconds) {
  if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Watchdog::reset() {
  if (seconds_ <= 0) return;
  const base::MutexLock lock(mutex_);
  happened_ = true;
}

void Watchdog::watch() {
  runtime::set_thread_name("cohort-watchdog");
  const auto limit = std::chrono::duration<double>(seconds_);
  while (true) {
    {
      const base::MutexLock lock(mutex_);
      changed_.wait_for(mutex_, limit, [this]() COHORT_REQUIRES(mutex_) { return ends_; });
      if (ends_) return;
      if (std::exchange(happened_, false)) continue;
    }
    COHORT_LOG(kWarning, "no function of the coordinator has ended for ", seconds_,
               " s; all threads are here:");
    dump_all_stacks();
  }
}

}  // namespace cohort::internal::coordinator
