// SPDX-License-Identifier: Apache-2.0
//
// What a task says of itself with each answer to a ping.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/rpc/payload.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::coordinator {

/// A server's part in one group of replicas.
struct GroupReport {
  int group = 0;
  bool is_primary = false;
  uint64_t epoch = 0;
  uint64_t backups = 0;  ///< Of the configuration that it knows.
  uint64_t lag = 0;      ///< Of a primary: updates that not all backups have yet.
};

struct TaskReport {
  uint64_t incarnation = 0;
  uint64_t rows_read = 0;     ///< Of variables, since the process has begun.
  uint64_t rows_changed = 0;  ///< The same; a backup's count, too.
  uint64_t memory_bytes = 0;  ///< Of the process; 0: not known.
  std::vector<GroupReport> groups = {};
};

void write_report(rpc::MessageWriter& out, const TaskReport& report);
/// Errors: DataLoss.
TaskReport read_report(rpc::MessageReader& in);
/// Of a whole answer.
TaskReport report_of(const rpc::Payload& payload);

/// Counts of this process. Threads: thread-safe. Cost: one addition of an atomic for each call.
struct RowCounts {
  std::atomic<uint64_t> read{0};
  std::atomic<uint64_t> changed{0};
};
RowCounts& row_counts();
/// What the system says of this process; 0 where it says nothing.
uint64_t resident_bytes();

}  // namespace cohort::internal::coordinator
