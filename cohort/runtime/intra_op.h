// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's threads inside one operation, for the calling thread only: OpenMP keeps the number
// per thread, and a new thread starts with the process's default instead of its parent's number.
#pragma once

namespace cohort::internal {

/// Sets the calling thread's number of intra-op threads; the destructor restores it.
/// 0 leaves everything alone. In a child of fork the thread that called it has one, whatever is
/// set.
class [[nodiscard]] IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  const int before_;
};

}  // namespace cohort::internal
