// SPDX-License-Identifier: Apache-2.0
//
// Effects of a function that count once: what a worker's thread changes on the servers while a
// Transaction lives is prepared there, and is done when the coordinator says so
// (cohort/replication/closures.h).
//
//   Variable count(scalar(0));
//   Transaction once(/*closure=*/7, /*attempt=*/1);
//   count.assign_add(scalar(1));   // of a variable on servers: changes nothing yet
//   once.counts();                 // what the coordinator has to know
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/rpc/payload.h"

namespace cohort::internal::coordinator {

inline constexpr const char* kPrepareMethod = "ps.prepare";
inline constexpr const char* kSettleMethod = "ps.settle";

/// What the coordinator has decided of one function.
struct ClosureSettlement {
  uint64_t closure = 0;
  uint64_t attempt = 0;               ///< 0: nothing of it is done.
  std::vector<uint64_t> counts = {};  ///< Of its effects by server; of those behind the end 0.
};

/// Threads: the one that has made it.
class [[nodiscard]] Transaction {
 public:
  Transaction(uint64_t closure, uint64_t attempt);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  /// This thread's; null: what it changes is changed at once.
  static Transaction* current();

  /// The request of kPrepareMethod for the next effect on this server.
  rpc::Payload prepared(int server, const char* method, const rpc::Payload& request);
  std::pair<uint64_t, uint64_t> attempt() const { return {closure_, attempt_}; }
  void acknowledge() { ++acknowledged_; }
  /// How many effects wait on each server. Errors: FailedPrecondition where one was not
  /// acknowledged, and the function has gone on all the same.
  const std::vector<uint64_t>& counts() const;

 private:
  const uint64_t closure_;
  const uint64_t attempt_;
  Transaction* const before_;
  std::vector<uint64_t> counts_;
  uint64_t acknowledged_ = 0;
};

/// While it lives, this thread changes things at once: variables are made, which is done once
/// anyway.
class [[nodiscard]] WithoutTransaction {
 public:
  WithoutTransaction();
  ~WithoutTransaction();
  WithoutTransaction(const WithoutTransaction&) = delete;
  WithoutTransaction& operator=(const WithoutTransaction&) = delete;

 private:
  Transaction* const before_;
};

}  // namespace cohort::internal::coordinator
