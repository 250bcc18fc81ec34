// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/group_messages.h"

#include <utility>

#include "cohort/rpc/wire.h"

namespace cohort::internal {
namespace {

using namespace replication;  // NOLINT(google-build-using-namespace): its messages, by their names

constexpr uint64_t kMostNodes = 1 << 16;
constexpr uint64_t kMostCounted = uint64_t{1} << 32;

// One order of the fields for both directions: `Io` writes them, or reads them.
struct FieldWriter {
  MessageWriter& out;
  void number(uint64_t x) { out.number(x); }
  void time(Time x) { out.signed_number(x.count()); }
  void text(const std::string& x) { out.text(x); }
  void flag(bool x) { out.number(x ? 1 : 0); }
  template <class T, class Each>
  void list(const std::vector<T>& all, uint64_t /*most*/, const Each& each) {
    out.number(all.size());
    for (T one : all) each(one);
  }
};
struct FieldReader {
  MessageReader& in;
  void number(uint64_t& x) { x = in.number(); }
  void time(Time& x) { x = Time(in.signed_number()); }
  void text(std::string& x) { x = in.text(); }
  void flag(bool& x) { x = in.number_up_to(1) == 1; }
  template <class T, class Each>
  void list(std::vector<T>& all, uint64_t most, const Each& each) {
    for (uint64_t left = in.number_up_to(most); left > 0; --left) {
      T one{};
      each(one);
      all.push_back(std::move(one));
    }
  }
};

template <class Io>
void fields(Io& io, Configuration& c) {
  io.number(c.epoch);
  io.number(c.primary);
  io.list(c.backups, kMostNodes, [&](NodeId& node) { io.number(node); });
}
template <class Io>
void fields(Io& io, Command& c) {
  io.number(c.client);
  io.number(c.sequence);
  io.number(c.oldest);
  io.text(c.bytes);
}
template <class Io>
void fields(Io& io, Heartbeat& m) {
  io.time(m.sent);
}
template <class Io>
void fields(Io& io, HeartbeatAnswer& m) {
  fields(io, m.configuration);
  io.time(m.sent);
}
template <class Io>
void fields(Io& io, Proposal& m) {
  fields(io, m.configuration);
}
template <class Io>
void fields(Io& /*io*/, Ask& /*m*/) {}
template <class Io>
void fields(Io& io, Configured& m) {
  fields(io, m.configuration);
}
template <class Io>
void fields(Io& io, Append& m) {
  io.number(m.epoch);
  io.number(m.previous);
  io.number(m.previous_epoch);
  io.list(m.entries, kMostCounted, [&](Entry& entry) {
    io.number(entry.epoch);
    fields(io, entry.command);
  });
  io.number(m.committed);
}
template <class Io>
void fields(Io& io, Appended& m) {
  io.number(m.epoch);
  io.flag(m.is_refused);
  io.number(m.last);
}

struct KeptResult {
  uint64_t sequence = 0;
  std::string text = {};
};
struct KeptClient {
  uint64_t client = 0;
  uint64_t oldest = 0;
  std::vector<KeptResult> results = {};
};
std::vector<KeptClient> listed(const Applied& applied) {
  std::vector<KeptClient> out;
  for (const auto& [client, kept] : applied.clients) {
    out.push_back({.client = client, .oldest = kept.oldest});
    for (const auto& [sequence, text] : kept.results)
      out.back().results.push_back({sequence, text});
  }
  return out;
}

template <class Io>
void fields(Io& io, Snapshot& m) {
  io.number(m.epoch);
  io.number(m.index);
  io.number(m.index_epoch);
  io.text(m.state);
  std::vector<KeptClient> clients = listed(m.applied);
  io.list(clients, kMostCounted, [&](KeptClient& each) {
    io.number(each.client);
    io.number(each.oldest);
    io.list(each.results, kMostCounted, [&](KeptResult& result) {
      io.number(result.sequence);
      io.text(result.text);
    });
  });
  for (KeptClient& each : clients) {
    Applied::Client& to = m.applied.clients[each.client];
    to.oldest = each.oldest;
    for (KeptResult& result : each.results) to.results[result.sequence] = std::move(result.text);
  }
}
template <class Io>
void fields(Io& /*io*/, Join& /*m*/) {}
template <class Io>
void fields(Io& io, Update& m) {
  fields(io, m.command);
}
template <class Io>
void fields(Io& io, Updated& m) {
  io.number(m.sequence);
  io.text(m.result);
}
template <class Io>
void fields(Io& io, Read& m) {
  io.number(m.ticket);
  io.text(m.query);
}
template <class Io>
void fields(Io& io, ReadAnswer& m) {
  io.number(m.ticket);
  io.text(m.value);
}

template <std::size_t... I>
Message message_of_index(uint64_t index, std::index_sequence<I...> /*all*/) {
  Message out;
  ((index == I ? static_cast<void>(out.emplace<I>()) : void()), ...);
  return out;
}

}  // namespace

std::string encode_group_message(const Message& message) {
  MessageWriter out;
  out.number(message.index());
  FieldWriter io{out};
  Message copy = message;
  std::visit([&](auto& m) { fields(io, m); }, copy);
  return out.str();
}

Message decode_group_message(std::string_view bytes) {
  constexpr std::size_t kKinds = std::variant_size_v<Message>;
  MessageReader in("[replication] ", bytes);
  Message out = message_of_index(in.number_up_to(kKinds - 1), std::make_index_sequence<kKinds>());
  FieldReader io{in};
  std::visit([&](auto& m) { fields(io, m); }, out);
  in.end();
  return out;
}

}  // namespace cohort::internal
