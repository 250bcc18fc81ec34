// SPDX-License-Identifier: Apache-2.0
//
// A mutex of which clang checks (-Wthread-safety, tools/check_thread_safety.py) that what it guards
// is touched only by threads that hold it:
//
//   Mutex mutex_;
//   std::vector<int> items_ COHORT_GUARDED_BY(mutex_);
//   void add(int item) { const MutexLock lock(mutex_); items_.push_back(item); }
//   void sort() COHORT_REQUIRES(mutex_);
//   ready_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) { return !items_.empty(); });
//
// The last line is std::condition_variable_any's, which takes the mutex itself. Other compilers
// see a std::mutex.
#pragma once

#include <mutex>

#if defined(__clang__)
#define COHORT_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define COHORT_THREAD_ATTRIBUTE(x)
#endif

/// Of a member: only a thread that holds the mutex may touch it. PT: what the pointer points to.
#define COHORT_GUARDED_BY(mutex) COHORT_THREAD_ATTRIBUTE(guarded_by(mutex))
#define COHORT_PT_GUARDED_BY(mutex) COHORT_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
/// Of a function or lambda: the caller holds the mutex, before and after.
#define COHORT_REQUIRES(...) COHORT_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// Of a function: takes the mutex, or gives it up.
#define COHORT_ACQUIRE(...) COHORT_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define COHORT_TRY_ACQUIRE(...) COHORT_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define COHORT_RELEASE(...) COHORT_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
/// Of a mutex: is taken before the other.
#define COHORT_ACQUIRED_BEFORE(...) COHORT_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
/// Of a function that the analysis cannot follow; a comment there says why it is right.
#define COHORT_NO_THREAD_SAFETY_ANALYSIS COHORT_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace cohort::internal::base {

/// std::mutex.
class COHORT_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() COHORT_ACQUIRE() { mutex_.lock(); }
  bool try_lock() COHORT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() COHORT_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a mutex until its end, or until unlock().
class [[nodiscard]] COHORT_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) COHORT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() COHORT_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() COHORT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

/// Gives up a mutex that the caller holds, and takes it again at its end, also after an exception.
class [[nodiscard]] COHORT_THREAD_ATTRIBUTE(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) COHORT_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  // RELEASE, of a scoped object: what its constructor did is undone.
  ~MutexUnlock() COHORT_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace cohort::internal::base
