// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/group_replica.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "cohort/base/boot_clock.h"
#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/cluster/store/group_keeper.h"
#include "cohort/cluster/store/group_messages.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/security.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using replication::Message;
using replication::NodeId;
using replication::Time;

// The lowest bits of a node's number are its task; clients that wait have one that no task has.
constexpr int kTaskBits = 16;
constexpr NodeId kTaskMask = (NodeId{1} << kTaskBits) - 1;
constexpr NodeId kClientTask = kTaskMask - 1;
// A message of the most that a call brings is one piece, and has room in a lane.
constexpr std::size_t kPieceBytes = std::size_t{17} << 18;
constexpr uint64_t kOwnWindow = 1024;
// Of what all have applied: who was away needs a snapshot soon. What is larger lies where it has
// arrived, in places that the next calls need.
constexpr std::size_t kKeptLog = std::size_t{64} << 10;
constexpr std::chrono::milliseconds kMemberTimeout{10'000};
// A primary whose store does not answer goes on trying while the lease lasts.
constexpr int kBeatsOfLease = 5;
constexpr int kResendsOfLease = 3;
// A primary that was replaced has been silent for a lease: it gets a beat more to say that it
// lives. Who is let go too early comes back by a snapshot.
constexpr int kGracesOfLease = 5;
// Updates that the log has no room for are held for so long, and then asked for again.
constexpr std::chrono::milliseconds kHold{1000};

// A lease ends while the machine is suspended, too.
Time group_now() {
  return std::chrono::duration_cast<Time>(base::BootClock::now().time_since_epoch());
}

NodeId new_node(int task) {
  const rpc::Secret random = rpc::Secret::random();
  NodeId out = 0;
  std::memcpy(&out, random.bytes().data(), sizeof out);
  return (out & ~kTaskMask) | static_cast<NodeId>(task);
}

replication::ReplicaOptions machine_options(const GroupReplicaOptions& options, NodeId id) {
  const Time lease = options.lease;
  return {.id = id,
          .membership = cluster::kGroupKeeper,
          .backups = static_cast<std::size_t>(options.copies - 1),
          .lease = lease,
          .heartbeat = lease / kBeatsOfLease,
          .resend = lease / kResendsOfLease,
          .patience = lease * 2,
          .grace = lease / kGracesOfLease,
          .kept_bytes = kKeptLog};
}

}  // namespace

GroupReplica::GroupReplica(GroupReplicaOptions options)
    : options_(std::move(options)),
      id_(new_node(options_.task)),
      parameters_(new ReplicatedParameters),
      replica_(machine_options(options_, id_),
               std::unique_ptr<replication::ReplicatedState>(parameters_)) {
  thread_ = std::thread([this] { work(); });
}

GroupReplica::~GroupReplica() { end(); }

void GroupReplica::end() {
  {
    const base::MutexLock lock(inbox_->mutex);
    inbox_->ends = true;
    inbox_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void GroupReplica::ask(Question question) {
  const base::MutexLock lock(inbox_->mutex);
  inbox_->questions.push_back(std::move(question));
  inbox_->changed.notify_one();
}

// What is sent anew while the first one is on its way does not end that: either may be whole first.
void GroupReplica::hear(NodeId from, const Place& place, rpc::Payload piece) {
  if (place.count > 1) {
    const base::MutexLock lock(inbox_->mutex);
    Pieces& pieces = inbox_->pieces[from];
    if (place.message <= pieces.done) return;
    auto& messages = pieces.messages;
    std::map<uint64_t, rpc::Payload>& parts = messages[place.message];
    parts[place.index] = std::move(piece);
    if (parts.size() < place.count) {
      if (messages.size() > 2) {
        messages.erase(std::next(messages.begin()), std::prev(messages.end()));
      }
      return;
    }
    piece = {};
    for (const auto& [index, part] : parts) {
      for (const rpc::Payload::Piece& each : part.pieces()) piece.append(each);
    }
    messages.erase(messages.begin(), messages.upper_bound(place.message));
    pieces.done = place.message;
  }
  inbox_->add({.from = from, .message = cluster::decode_group_payload(piece)});
}

void GroupReplica::work() {
  runtime::set_thread_name("cohort-replica");
  while (true) {
    std::deque<Heard> heard;
    std::deque<Question> questions;
    const GroupReport now = current_report();
    {
      Inbox& in = *inbox_;
      const base::MutexLock lock(in.mutex);
      in.report = now;
      in.changed.wait_for(in.mutex, options_.lease / (4 * kBeatsOfLease),
                          [&in]() COHORT_REQUIRES(in.mutex) {
                            return in.ends || !in.heard.empty() || !in.questions.empty();
                          });
      if (in.ends) return;
      heard.swap(in.heard);
      questions.swap(in.questions);
    }
    // The store hears of this server in between, however much there is to do.
    for (const Heard& each : heard) {
      take_in(each, group_now());
      beat(group_now());
    }
    for (const Question& each : questions) {
      answer(each, group_now());
      beat(group_now());
    }
    beat(group_now());
    look_at_held(group_now());
    look_at_tickets(group_now());
  }
}

GroupReport GroupReplica::current_report() const {
  return {.group = options_.group,
          .is_primary = replica_.is_primary(),
          .epoch = replica_.epoch(),
          .backups = replica_.configuration().backups.size(),
          .lag = replica_.is_primary() ? replica_.last() - replica_.committed() : 0};
}

GroupReport GroupReplica::report() const {
  const base::MutexLock lock(inbox_->mutex);
  return inbox_->report;
}

void GroupReplica::beat(Time now) {
  if (has_begun(now)) or_end([&] { replica_.advance(now); });
  send_all(now);
}

// The group's first primary is the one that is meant to be; the others look until there is one.
bool GroupReplica::has_begun(Time now) {
  if (has_begun_) return true;
  if (options_.is_first) return has_begun_ = true;
  if (now < asked_ + Time(options_.lease) / kBeatsOfLease) return false;
  asked_ = now;
  send_to_store(replication::Ask{});
  return false;
}

void GroupReplica::take_in(const Heard& heard, Time now) {
  const auto* const configured = std::get_if<replication::Configured>(&heard.message);
  if (configured != nullptr && configured->configuration.epoch == 0) return;
  has_begun_ = true;
  bring(heard.from, heard.message, now);
  send_all(now);  // acknowledges, before it is applied
}

void GroupReplica::bring(NodeId from, const Message& message, Time now) {
  or_end([&] { replica_.receive(from, message, now); });
}

void GroupReplica::or_end(const std::function<void()>& work) const {
  try {
    work();
  } catch (const std::exception& e) {
    // Its state is not to be trusted any more; the others have it.
    COHORT_LOG(kFatal, "ps ", options_.task, ", shards of group ", options_.group, ": ", e.what());
    std::abort();
  }
}

NodeId GroupReplica::new_ticket(const Question& question, Time now) {
  const NodeId ticket = (++tickets_made_ << kTaskBits) | kClientTask;
  tickets_.emplace(ticket, Ticket{question.reply, now + Time(kMemberTimeout)});
  return ticket;
}

void GroupReplica::answer(const Question& question, Time now) {
  const auto kind = ParameterService::kind_of(question.method);
  try {
    if (question.method == "ps.formed") {
      if (!replica_.is_primary()) return question.reply.send(not_primary());
      return question.reply.send(
          group_answer(was_whole_ ? GroupStatus::kDone : GroupStatus::kAgain));
    }
    if (kind != ParameterService::Kind::kRead) return update(question, now);
    read(question, now);
  } catch (const std::exception& e) {
    question.reply.fail(e);
  }
}

void GroupReplica::read(const Question& question, Time now) {
  const NodeId ticket = new_ticket(question, now);
  try {
    replica_.receive(
        ticket,
        replication::Read{
            .ticket = ticket,
            .query = group_call(question.generation, question.method, question.payload).str()},
        now);
  } catch (...) {
    tickets_.erase(ticket);
    throw;
  }
  send_all(now);
  if (const auto left = tickets_.extract(ticket)) {  // no lease yet, or any more
    question.reply.send(group_answer(GroupStatus::kAgain));
  }
}

void GroupReplica::update(const Question& question, Time now) {
  replication::Command command;
  const bool is_once =
      question.method == "ps.begin" ||
      ParameterService::kind_of(question.method) == ParameterService::Kind::kChangeOnce;
  COHORT_CHECK_ARG(
      is_once || ParameterService::kind_of(question.method) == ParameterService::Kind::kChange,
      "[ps] expected a call of replicated parameter servers, got \"", question.method, "\"");
  if (replica_.is_primary() && !replica_.has_room()) {
    held_.push_back({question, now + Time(kHold)});
    return;
  }
  if (is_once) {
    PayloadReader data("[ps] ", question.payload);
    const CallNumber number = read_number(data);
    const rpc::Payload call = rest_of(question.payload, data.left());
    if (replica_.is_primary()) parameters_->check_room(question.method, call);
    command = {.client = number.client, .sequence = number.sequence, .oldest = number.oldest};
    command.bytes = group_call(question.generation, question.method, call);
  } else {
    command = {.client = id_, .sequence = ++own_updates_};
    command.oldest = own_updates_ > kOwnWindow ? own_updates_ - kOwnWindow : 1;
    command.bytes = group_call(question.generation, question.method, question.payload);
  }
  bring(new_ticket(question, now), replication::Update{std::move(command)}, now);
}

void GroupReplica::look_at_held(Time now) {
  while (!held_.empty() && (replica_.has_room() || !replica_.is_primary())) {
    const Held one = std::move(held_.front());
    held_.pop_front();
    answer(one.question, now);
    beat(now);
  }
  for (; !held_.empty() && held_.front().until <= now; held_.pop_front()) {
    held_.front().question.reply.send(group_answer(GroupStatus::kAgain));
  }
}

rpc::Payload GroupReplica::not_primary() const {
  const NodeId primary = replica_.configuration().primary;
  rpc::MessageWriter hint;
  hint.number(primary == 0 || primary == id_ ? 0 : (primary & kTaskMask) + 1);
  return group_answer(GroupStatus::kNotPrimary, hint.str());
}

void GroupReplica::send_all(Time /*now*/) {
  if (replica_.is_primary() && !was_primary_) {
    was_primary_ = true;
    if (replica_.epoch() > 1) base::failpoint("ps.promoted");
    COHORT_LOG(kInfo, "ps ", options_.task, " is the primary of shards ", options_.group,
               " in epoch ", replica_.epoch());
  } else if (was_primary_ && !replica_.is_primary()) {
    was_primary_ = false;  // the next one answers
    for (const auto& [ticket, open] : std::exchange(tickets_, {})) open.reply.send(not_primary());
  }
  const bool is_whole = replica_.is_primary() && replica_.configuration().backups.size() + 1 >=
                                                     static_cast<std::size_t>(options_.copies);
  if (is_whole && !was_whole_) base::failpoint("ps.whole");
  was_whole_ = is_whole;
  for (replication::Outgoing& each : replica_.take_messages()) send(std::move(each));
}

void GroupReplica::send(replication::Outgoing one) {
  if (one.to == cluster::kGroupKeeper) return send_to_store(one.message);
  if ((one.to & kTaskMask) == kClientTask) return tell(one.to, one.message);
  const auto peer = options_.peers.find(static_cast<int>(one.to & kTaskMask));
  if (peer == options_.peers.end()) return;
  if (std::holds_alternative<replication::Appended>(one.message))
    base::failpoint("ps.acknowledges");
  // Pieces stay where they arrive until all are there: they would fill a lane.
  const bool is_whole = !std::holds_alternative<replication::SnapshotPiece>(one.message);
  const rpc::Payload whole = cluster::encode_group_payload(std::move(one.message));
  const std::size_t count =
      std::max<std::size_t>(1, (whole.size() + kPieceBytes - 1) / kPieceBytes);
  ++messages_;
  for (std::size_t i = 0; i < count; ++i) {
    rpc::MessageWriter out;
    out.number(static_cast<uint64_t>(options_.group));
    out.number(id_);
    out.number(messages_);
    out.number(count);
    out.number(i);
    rpc::Payload payload(out.str());
    const rpc::Payload part = part_of(whole, i * kPieceBytes, kPieceBytes);
    for (const rpc::Payload::Piece& piece : part.pieces()) payload.append(piece);
    send_piece(peer->first, std::move(payload), is_whole && count == 1);
  }
}

// What has no answer is sent again. The other side has to refuse what overtakes another: so nothing
// goes in the lane while something is on its way over gRPC, and behind a large one that has not
// arrived goes what is small like large ones, whose thread is another one.
void GroupReplica::send_piece(int task, rpc::Payload piece, bool in_lane) {
  rpc::RpcClient& peer = *options_.peers.at(task);
  Road& road = roads_[task];
  if (in_lane && *road.over_grpc == 0) {
    if (road.last_large && road.last_large->is_over()) road.last_large.reset();
    // The lease goes on while a lane is opened.
    rpc::RpcCallOptions options{.timeout = options_.lease / (4 * kBeatsOfLease)};
    if (road.last_large) options.answer_bytes = rpc::LaneMemory::kSmallBytes;
    rpc::LaneStart started = peer.start_in_lane("ps.member", piece, options);
    if (started.is_large) road.last_large = std::move(started.call);
    if (started.is_large || started.call) return;
  }
  ++*road.over_grpc;
  peer.start("ps.member", std::move(piece), {.timeout = kMemberTimeout},
             [under_way = road.over_grpc](const rpc::RpcResult&) { --*under_way; });
}

void GroupReplica::send_to_store(const Message& message) {
  const std::string question =
      cluster::encode_group_question({.group = str_cat("ps/", options_.job, "/", options_.group),
                                      .lease = options_.lease,
                                      .from = id_,
                                      .message = message});
  options_.store->start(cluster::kGroupMethod, rpc::Payload(question), {.timeout = options_.lease},
                        [inbox = inbox_](const rpc::RpcResult& result) {
                          if (result.error) return hear_refusal(*inbox, result.error);
                          hear_store(*inbox, result.payload);
                        });
}

// A store that does not answer is asked again; one that refuses goes on refusing.
void GroupReplica::hear_refusal(Inbox& inbox, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const FailedPrecondition& e) {
    const base::MutexLock lock(inbox.mutex);
    if (!std::exchange(inbox.is_refused, true)) {
      COHORT_LOG(kError, "the job's store refuses this server: ", e.what());
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): it passes
  }
}

// On a thread of gRPC's.
void GroupReplica::hear_store(Inbox& inbox, const rpc::Payload& answer) {
  try {
    for (Message& each : cluster::decode_group_answer(answer.text())) {
      inbox.add({cluster::kGroupKeeper, std::move(each)});
    }
  } catch (const DataLoss& e) {
    COHORT_LOG(kWarning, "the job's store: ", e.what());
  }
}

// What all backups have, and its client does not know yet.
void GroupReplica::tell(NodeId ticket, const Message& message) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  const rpc::RpcReply reply = found->second.reply;
  tickets_.erase(found);
  if (const auto* const updated = std::get_if<replication::Updated>(&message)) {
    base::failpoint("ps.before_answer");
    reply.send(rpc::Payload(updated->result));
  } else if (const auto* const read = std::get_if<replication::ReadAnswer>(&message)) {
    reply.send(rpc::Payload(read->value));
  } else {
    reply.send(not_primary());
  }
}

void GroupReplica::look_at_tickets(Time now) {
  for (auto it = tickets_.begin(); it != tickets_.end();) {
    if (now < it->second.until) {
      ++it;
      continue;
    }
    it->second.reply.send(group_answer(GroupStatus::kAgain));
    it = tickets_.erase(it);
  }
}

}  // namespace cohort::internal::coordinator
