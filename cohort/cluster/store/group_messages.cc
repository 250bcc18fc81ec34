// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/group_messages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::cluster {
namespace {

using namespace replication;  // NOLINT(google-build-using-namespace): its messages, by their names

constexpr uint64_t kMostNodes = 1 << 16;
constexpr uint64_t kMostCounted = uint64_t{1} << 32;

// What is larger travels from where it lies,
constexpr std::size_t kCopiedBytes = 4096;
// and stays where it has arrived: smaller than this, it would keep more than itself there.
constexpr std::size_t kCopiedArrivals = std::size_t{64} << 10;

[[noreturn]] void refuse_group_message() {
  throw DataLoss(
      "[replication] expected a message of a replicated server, got other bytes; the "
      "other side is damaged, of another version or no part of Cohort");
}

// One order of the fields for both directions: `Io` writes them, or reads them.
class FieldWriter {
 public:
  void number(uint64_t x) { small_.number(x); }
  void time(Time x) { small_.signed_number(x.count()); }
  void text(const std::string& x) { small_.text(x); }
  void bytes(const Bytes& x) {
    if (x.size() <= kCopiedBytes) return small_.text(x.str());
    small_.number(x.size());
    flush();
    for (const Bytes::Piece piece : x.pieces()) out_.append({.bytes = piece, .owner = x.owner()});
  }
  void flag(bool x) { small_.number(x ? 1 : 0); }
  template <class T, class Each>
  void list(std::vector<T>& all, uint64_t /*most*/, const Each& each) {
    small_.number(all.size());
    for (T& one : all) each(one);
  }
  rpc::Payload take() {
    flush();
    return std::move(out_);
  }

 private:
  void flush() {
    const auto text = std::make_shared<const std::string>(small_.str());
    if (!text->empty()) out_.append({.bytes = std::as_bytes(std::span(*text)), .owner = text});
    small_ = {};
  }
  rpc::MessageWriter small_;
  rpc::Payload out_;
};
class FieldReader {
 public:
  explicit FieldReader(const rpc::Payload& from) : from_(from), left_(from.size()) {}
  void number(uint64_t& x) {
    std::string bytes(sizeof x, '\0');
    read(bytes);
    x = rpc::MessageReader("[replication] ", bytes).number();
  }
  uint64_t number_up_to(uint64_t most) {
    uint64_t out = 0;
    number(out);
    if (out > most) refuse_group_message();
    return out;
  }
  void time(Time& x) {
    uint64_t count = 0;
    number(count);
    x = Time(static_cast<int64_t>(count));
  }
  void text(std::string& x) {
    x.resize(number_up_to(left_));
    read(x);
  }
  void bytes(Bytes& x) {
    const std::size_t size = number_up_to(left_);
    if (size > kCopiedArrivals) {
      x = shared(size);
      return;
    }
    std::string out(size, '\0');
    read(out);
    x = std::move(out);
  }
  void flag(bool& x) { x = number_up_to(1) == 1; }
  template <class T, class Each>
  void list(std::vector<T>& all, uint64_t most, const Each& each) {
    for (uint64_t left = number_up_to(most); left > 0; --left) {
      T one{};
      each(one);
      all.push_back(std::move(one));
    }
  }
  void end() const {
    if (left_ > 0) refuse_group_message();
  }

 private:
  // The next bytes, up to `most`, that lie together.
  std::span<const std::byte> next(std::size_t most) {
    const std::span<const std::byte> piece = from_.pieces()[piece_].bytes;
    const std::span<const std::byte> out = piece.subspan(at_, std::min(most, piece.size() - at_));
    left_ -= out.size();
    at_ += out.size();
    if (at_ == piece.size()) {
      ++piece_;
      at_ = 0;
    }
    return out;
  }
  void read(std::string& to) {
    if (to.size() > left_) refuse_group_message();
    for (std::size_t done = 0; done < to.size();) {
      const std::span<const std::byte> piece = next(to.size() - done);
      std::memcpy(to.data() + done, piece.data(), piece.size());
      done += piece.size();
    }
  }
  // Where they lie, unless somebody else may take them away.
  Bytes shared(std::size_t size) {
    auto owner = std::make_shared<rpc::Payload>();
    bool is_owned = true;
    for (std::size_t done = 0; done < size;) {
      const std::shared_ptr<const void>& keeper = from_.pieces()[piece_].owner;
      is_owned = is_owned && keeper != nullptr;
      const std::span<const std::byte> piece = next(size - done);
      owner->append({.bytes = piece, .owner = keeper});
      done += piece.size();
    }
    if (!is_owned) return owner->text();
    std::vector<Bytes::Piece> pieces;
    for (const rpc::Payload::Piece& each : owner->pieces()) pieces.push_back(each.bytes);
    return {std::move(pieces), std::move(owner)};
  }
  const rpc::Payload& from_;
  std::size_t left_;
  std::size_t piece_ = 0;
  std::size_t at_ = 0;  // in the piece
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
  io.bytes(c.bytes);
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
void fields(Io& io, SnapshotPiece& m) {
  io.number(m.epoch);
  io.number(m.number);
  io.number(m.index);
  io.number(m.index_epoch);
  io.number(m.place);
  io.number(m.count);
  io.bytes(m.bytes);
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
void fields(Io& io, SnapshotTaken& m) {
  io.number(m.epoch);
  io.number(m.number);
  io.number(m.pieces);
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

rpc::Payload encode_group_payload(Message message) {
  FieldWriter io;
  io.number(message.index());
  std::visit([&](auto& m) { fields(io, m); }, message);
  return io.take();
}

std::string encode_group_message(Message message) {
  return encode_group_payload(std::move(message)).text();
}

Message decode_group_payload(const rpc::Payload& bytes) {
  constexpr std::size_t kKinds = std::variant_size_v<Message>;
  FieldReader io(bytes);
  Message out = message_of_index(io.number_up_to(kKinds - 1), std::make_index_sequence<kKinds>());
  std::visit([&](auto& m) { fields(io, m); }, out);
  io.end();
  return out;
}

Message decode_group_message(std::string_view bytes) {
  rpc::Payload whole;
  whole.append({.bytes = std::as_bytes(std::span(bytes)), .owner = {}});
  return decode_group_payload(whole);
}

}  // namespace cohort::internal::cluster
