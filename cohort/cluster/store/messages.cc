// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/messages.h"

#include "cohort/rpc/wire.h"

namespace cohort::internal::cluster {
namespace {

constexpr const char* kStore = "[store] ";
constexpr uint64_t kMostListed = 100'000;

void write_milliseconds(rpc::MessageWriter& out, std::chrono::milliseconds value) {
  out.signed_number(value.count());
}
std::chrono::milliseconds read_milliseconds(rpc::MessageReader& in) {
  return std::chrono::milliseconds(in.number_up_to(uint64_t{1} << 40));
}

}  // namespace

const char* store_verb_name(StoreVerb verb) {
  switch (verb) {
    case StoreVerb::kGet:
      return "get";
    case StoreVerb::kSet:
      return "set";
    case StoreVerb::kInsert:
      return "insert";
    case StoreVerb::kAdd:
      return "add";
    case StoreVerb::kErase:
      return "erase";
    case StoreVerb::kMeet:
      return "meet";
    case StoreVerb::kJoin:
      return "join";
    case StoreVerb::kHeartbeat:
      return "heartbeat";
    case StoreVerb::kLeave:
      return "leave";
    case StoreVerb::kMembers:
      return "members";
    case StoreVerb::kMayWrite:
      return "may_write";
  }
  return "";
}

std::string encode(const StoreRequest& request) {
  rpc::MessageWriter out;
  out.text(request.key);
  out.text(request.value);
  out.text(request.pace);
  out.signed_number(request.number);
  write_milliseconds(out, request.wait);
  write_milliseconds(out, request.lease);
  return out.str();
}

StoreRequest decode_store_request(StoreVerb verb, std::string_view bytes) {
  rpc::MessageReader in(kStore, bytes);
  StoreRequest request{.verb = verb};
  request.key = in.text();
  request.value = in.text();
  request.pace = in.text();
  request.number = in.signed_number();
  request.wait = read_milliseconds(in);
  request.lease = read_milliseconds(in);
  in.end();
  return request;
}

std::string encode(const StoreReply& reply) {
  rpc::MessageWriter out;
  out.number(reply.yes ? 1 : 0);
  out.text(reply.value);
  out.signed_number(reply.number);
  out.number(reply.all.size());
  for (const auto& [task, value] : reply.all) {
    out.text(task);
    out.text(value);
  }
  out.number(reply.members.size());
  for (const StoreMember& member : reply.members) {
    out.text(member.task);
    out.text(member.address);
    out.number(member.generation);
    out.number(static_cast<uint64_t>(member.state));
    write_milliseconds(out, member.silent);
    out.text(member.doing);
    out.text(member.pace);
  }
  return out.str();
}

StoreReply decode_store_reply(std::string_view bytes) {
  rpc::MessageReader in(kStore, bytes);
  StoreReply reply;
  reply.yes = in.number_up_to(1) == 1;
  reply.value = in.text();
  reply.number = in.signed_number();
  for (uint64_t left = in.number_up_to(kMostListed); left > 0; --left) {
    std::string task = in.text();
    reply.all[std::move(task)] = in.text();
  }
  for (uint64_t left = in.number_up_to(kMostListed); left > 0; --left) {
    StoreMember member;
    member.task = in.text();
    member.address = in.text();
    member.generation = in.number();
    member.state = static_cast<StoreMember::State>(in.number_up_to(2));
    member.silent = read_milliseconds(in);
    member.doing = in.text();
    member.pace = in.text();
    reply.members.push_back(std::move(member));
  }
  in.end();
  return reply;
}

}  // namespace cohort::internal::cluster
