// SPDX-License-Identifier: Apache-2.0
//
// A job whose ranks are threads of this process, for tests: their messages meet in memory, by real
// copies, with real deadlines and failures. A test can make a rank fail, late or silent.
//
//   ThreadJob job(3);
//   job.run([](Communicator& communicator) { communicator.barrier(); });
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/collectives/communicator.h"

namespace cohort::internal::collectives {

class ThreadMeeting;

/// Calls body(communicator) on a thread for each rank and waits for all; null: a rank that has
/// left. Returns the error of each rank, if any, which has ended the generation on all.
std::vector<std::exception_ptr> try_on_ranks(
    std::span<const std::shared_ptr<Communicator>> ranks,
    base::FunctionRef<void(Communicator& communicator)> body);

/// Threads: thread-safe, but for each rank's communicator.
class ThreadJob {
 public:
  explicit ThreadJob(int size, CommunicatorOptions options = {});
  ~ThreadJob();

  int size() const { return static_cast<int>(ranks_.size()); }
  /// Rank r's communicator, or with leave() none any more.
  Communicator& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<Communicator>& share(int rank) {
    return ranks_[static_cast<std::size_t>(rank)];
  }

  /// Calls body(communicator) on a thread for each rank and waits for all. What it throws on one
  /// rank ends the generation on all, as where processes agree on a failure.
  /// Errors: of the rank that failed first, as it was thrown there.
  void run(base::FunctionRef<void(Communicator& communicator)> body);
  /// The error of each rank, if any.
  std::vector<std::exception_ptr> try_run(
      base::FunctionRef<void(Communicator& communicator)> body) {
    return try_on_ranks(ranks_, body);
  }

  /// Calls `hook` on the rank's thread before each exchange that it starts, and before a commit. It
  /// may wait (a slow rank) or throw (one that fails here).
  using Hook = std::function<void(const ExchangeKey& key, const CallSignature& signature)>;
  void before_each(int rank, Hook hook);
  /// The same before it waits for one that it has started, whose messages may have come by then: a
  /// rank that the system lets run late.
  void before_wait(int rank, Hook hook);
  /// From now on the rank and the others do not hear of each other, as behind a cut line; until the
  /// next generation.
  void silence(int rank);
  /// Destroys the rank's communicator: who waits for it gets Unavailable.
  void leave(int rank);

 private:
  const std::shared_ptr<ThreadMeeting> meeting_;
  std::vector<std::shared_ptr<Communicator>> ranks_;
};

}  // namespace cohort::internal::collectives
