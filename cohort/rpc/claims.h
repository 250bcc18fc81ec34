// SPDX-License-Identifier: Apache-2.0
//
// What every call says of its caller, and the proof that it knows the job's token: HMAC-SHA256 over
// job, task, generation, method and a number that is used once.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::rpc {

struct RpcClaims {
  std::string job = {};
  std::string task = {};    ///< "worker 1"; "" for one that is no task.
  uint64_t generation = 0;  ///< Of the task, as the store counts it.
  bool operator==(const RpcClaims&) const = default;
};

/// Makes the header of each call. Threads: thread-safe.
class ClaimsSigner {
 public:
  explicit ClaimsSigner(Secret token);
  std::string header(const RpcClaims& claims, std::string_view method);

 private:
  const Secret token_;
  uint64_t session_ = 0;  // this signer's, drawn at random
  base::Mutex mutex_;
  uint64_t count_ COHORT_GUARDED_BY(mutex_) = 0;
};

/// Threads: thread-safe.
class ClaimsVerifier {
 public:
  /// An empty token believes everybody of the job.
  ClaimsVerifier(std::string job, Secret token);
  /// Errors: Unauthenticated for another job, a wrong proof and a header that was used before; its
  ///         text says nothing of what would be right.
  RpcClaims verify(std::string_view header, std::string_view method);

 private:
  // The latest numbers of a session that were used.
  struct Window {
    uint64_t highest = 0;
    std::vector<bool> used = {};  // [number % size]
  };
  struct Session {
    Window window = {};
    std::list<uint64_t>::iterator place = {};  // in order_
  };
  void check_fresh(uint64_t session, uint64_t count) COHORT_REQUIRES(mutex_);

  const std::string job_;
  const Secret token_;
  base::Mutex mutex_;
  std::map<uint64_t, Session> sessions_ COHORT_GUARDED_BY(mutex_);
  std::list<uint64_t> order_ COHORT_GUARDED_BY(mutex_);  // the least recently used first
};

}  // namespace cohort::internal::rpc
