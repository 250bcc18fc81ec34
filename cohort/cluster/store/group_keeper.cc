// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/group_keeper.h"

#include <utility>

#include "cohort/base/boot_clock.h"
#include "cohort/base/check.h"
#include "cohort/cluster/store/group_messages.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::cluster {
namespace {

constexpr const char* kGroup = "[replication] ";
constexpr uint64_t kMostLease = 24ULL * 3600 * 1000;
constexpr uint64_t kMostAnswers = 1 << 16;
constexpr std::size_t kMostGroups = 1 << 16;
// Of quartz: far more than any machine's.
constexpr double kClockDrift = 0.01;

replication::Time boot_now() {
  return std::chrono::duration_cast<replication::Time>(base::BootClock::now().time_since_epoch());
}

}  // namespace

std::string encode_group_question(const GroupQuestion& question) {
  rpc::MessageWriter out;
  out.text(question.group);
  out.signed_number(question.lease.count());
  out.number(question.from);
  out.text(encode_group_message(question.message));
  return out.str();
}

std::vector<replication::Message> decode_group_answer(const std::string& bytes) {
  rpc::MessageReader in(kGroup, bytes);
  std::vector<replication::Message> out;
  for (uint64_t left = in.number_up_to(kMostAnswers); left > 0; --left) {
    out.push_back(decode_group_message(in.text()));
  }
  in.end();
  return out;
}

GroupKeeper::Group::Group(std::chrono::milliseconds of_servers)
    : lease(of_servers), membership({.lease = of_servers, .clock_drift = kClockDrift}) {}

GroupKeeper::GroupKeeper(Now now) : now_(now ? std::move(now) : Now(boot_now)) {}

std::string GroupKeeper::ask(const std::string& question) {
  rpc::MessageReader in(kGroup, question);
  const std::string name = in.text();
  const std::chrono::milliseconds lease(in.number_up_to(kMostLease));
  const replication::NodeId from = in.number();
  const replication::Message message = decode_group_message(in.text());
  in.end();
  std::vector<std::string> answers;
  {
    const base::MutexLock lock(mutex_);
    COHORT_CHECK_STATE(groups_.size() < kMostGroups, kGroup, "expected at most ", kMostGroups,
                       " groups of servers, got one more");
    Group& of_name = groups_.try_emplace(name, lease).first->second;
    COHORT_CHECK_STATE(of_name.lease == lease, kGroup, "expected a lease of ",
                       of_name.lease.count(), " ms, as the servers before have it, got ",
                       lease.count(), " ms; set COHORT_LEASE_MS alike for all parameter servers");
    replication::Membership& group = of_name.membership;
    const replication::Time now = now_();
    group.receive(from, message, now);
    group.advance(now);
    for (const replication::Outgoing& each : group.take_messages()) {
      if (each.to == from) answers.push_back(encode_group_message(each.message));
    }
  }
  rpc::MessageWriter out;
  out.number(answers.size());
  for (const std::string& each : answers) out.text(each);
  return out.str();
}

}  // namespace cohort::internal::cluster
