// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a replicated server tell each other. The epoch stands in every message that
// could do harm when it comes late.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::internal::replication {

/// One start of one process: who starts anew has another one. 0: nobody.
using NodeId = uint64_t;
/// Counts configurations.
using Epoch = uint64_t;
/// Of an entry of the log, from 1.
using Index = uint64_t;
/// Of one node's own clock, which may run at another pace than others' and shows another time.
using Time = std::chrono::microseconds;

/// Bytes that several have a share of, and nobody changes: a text, or pieces where they lie.
class Bytes {
 public:
  using Piece = std::span<const std::byte>;

  Bytes() = default;
  Bytes(std::string text)  // NOLINT(google-explicit-constructor): a text is what it stands for
      : whole_(std::make_shared<const Whole>(std::move(text))) {}
  /// `owner` keeps them there, and as they are.
  Bytes(std::vector<Piece> pieces, std::shared_ptr<const void> owner)
      : whole_(std::make_shared<const Whole>(std::move(pieces), std::move(owner))) {}

  /// One after the other; of no bytes there may be none, or an empty one.
  std::span<const Piece> pieces() const {
    return whole_ == nullptr ? std::span<const Piece>() : std::span(whole_->pieces);
  }
  /// Keeps the pieces there.
  std::shared_ptr<const void> owner() const { return whole_; }
  std::size_t size() const { return whole_ == nullptr ? 0 : whole_->size; }
  /// Cost: a copy.
  std::string str() const {
    std::string out;
    out.reserve(size());
    for (const Piece piece : pieces()) {
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return out;
  }

 private:
  struct Whole {
    explicit Whole(std::string given)
        : text(std::move(given)), pieces{std::as_bytes(std::span(text))}, size(text.size()) {}
    Whole(std::vector<Piece> given, std::shared_ptr<const void> keeper)
        : pieces(std::move(given)), owner(std::move(keeper)) {
      for (const Piece piece : pieces) size += piece.size();
    }
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;
    const std::string text;
    const std::vector<Piece> pieces;
    const std::shared_ptr<const void> owner;
    std::size_t size = 0;
  };
  std::shared_ptr<const Whole> whole_;
};

/// Who keeps the state in an epoch.
struct Configuration {
  Epoch epoch = 0;
  NodeId primary = 0;
  std::vector<NodeId> backups = {};

  bool has_backup(NodeId node) const {
    return std::find(backups.begin(), backups.end(), node) != backups.end();
  }
};

/// An update, the same however often it is sent.
struct Command {
  uint64_t client = 0;
  uint64_t sequence = 0;  ///< From 1.
  uint64_t oldest = 0;    ///< Before this one the client waits for no result (any more).
  Bytes bytes = {};
};

struct Entry {
  Epoch epoch = 0;  ///< Of the primary that has put it into the log.
  Command command = {};
};

/// Results of what has been applied, which are kept until their client has them: by client, by
/// sequence.
struct Applied {
  struct Client {
    uint64_t oldest = 1;
    std::map<uint64_t, std::string> results = {};
  };
  std::map<uint64_t, Client> clients = {};
};

// Between replicas and the membership service.
struct Heartbeat {
  Time sent = {};  ///< By the sender's clock.
};
struct HeartbeatAnswer {
  Configuration configuration = {};
  Time sent = {};  ///< Of the heartbeat.
};
/// To be the next configuration, if the one before it is still the current one.
struct Proposal {
  Configuration configuration = {};
};
/// What is the current one?
struct Ask {};
struct Configured {
  Configuration configuration = {};
};

// Between a primary and its backups.
struct Append {
  Epoch epoch = 0;
  Index previous = 0;  ///< The entries are those behind this one,
  Epoch previous_epoch = 0;
  std::vector<Entry> entries = {};
  Index committed = 0;
};
struct Appended {
  Epoch epoch = 0;
  bool is_refused = false;
  Index last = 0;  ///< Has all up to it; refused: is not further than that.
};
/// A part of the state as it was behind entry `index`. The parts of one snapshot are told from
/// those of another one of the same primary by its number.
struct SnapshotPiece {
  Epoch epoch = 0;
  uint64_t number = 0;
  Index index = 0;  ///< What has been applied,
  Epoch index_epoch = 0;
  uint64_t place = 0;  ///< Of so many pieces.
  uint64_t count = 1;
  Bytes bytes = {};
  Applied applied = {};  ///< With the first one.
};
struct SnapshotTaken {
  Epoch epoch = 0;
  uint64_t number = 0;
  uint64_t pieces = 0;  ///< Has so many, from the front.
};
/// A node that is in no configuration would like to be a backup.
struct Join {};

// Between clients and replicas.
struct Update {
  Command command = {};
};
struct Updated {
  uint64_t sequence = 0;
  std::string result = {};
};
struct Read {
  uint64_t ticket = 0;
  std::string query = {};
};
struct ReadAnswer {
  uint64_t ticket = 0;
  std::string value = {};
};

using Message =
    std::variant<Heartbeat, HeartbeatAnswer, Proposal, Ask, Configured, Append, Appended,
                 SnapshotPiece, SnapshotTaken, Join, Update, Updated, Read, ReadAnswer>;

struct Outgoing {
  NodeId to = 0;
  Message message = {};
};

}  // namespace cohort::internal::replication
