// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/status/task_report.h"

#include <unistd.h>

#include <fstream>

namespace cohort::internal::coordinator {
namespace {

constexpr uint64_t kMostReportedGroups = 1 << 16;

}  // namespace

void write_report(rpc::MessageWriter& out, const TaskReport& report) {
  out.number(report.incarnation);
  out.number(report.rows_read);
  out.number(report.rows_changed);
  out.number(report.memory_bytes);
  out.number(report.groups.size());
  for (const GroupReport& each : report.groups) {
    out.signed_number(each.group);
    out.number(each.is_primary ? 1 : 0);
    out.number(each.epoch);
    out.number(each.backups);
    out.number(each.lag);
  }
}

TaskReport read_report(rpc::MessageReader& in) {
  TaskReport out;
  out.incarnation = in.number();
  out.rows_read = in.number();
  out.rows_changed = in.number();
  out.memory_bytes = in.number();
  for (uint64_t left = in.number_up_to(kMostReportedGroups); left > 0; --left) {
    GroupReport group;
    group.group = static_cast<int>(in.signed_number());
    group.is_primary = in.number_up_to(1) == 1;
    group.epoch = in.number();
    group.backups = in.number();
    group.lag = in.number();
    out.groups.push_back(group);
  }
  return out;
}

TaskReport report_of(const rpc::Payload& payload) {
  const std::string text = payload.text();
  rpc::MessageReader in("[coordinator] ", text);
  TaskReport out = read_report(in);
  in.end();
  return out;
}

RowCounts& row_counts() {
  static RowCounts counts;
  return counts;
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  if (!(file >> all >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace cohort::internal::coordinator
