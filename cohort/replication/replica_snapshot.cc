// SPDX-License-Identifier: Apache-2.0
//
// How a state goes to who has nothing, or too little, of the log: in pieces, several on their way,
// of which those that are lost go again.
#include <algorithm>
#include <utility>

#include "cohort/replication/replica.h"

namespace cohort::internal::replication {

void Replica::begin_transfer(NodeId to, Follower& follower) {
  Transfer& made = transfers_[to];
  made = {.number = ++transfers_made_,
          .index = applied_until_,
          .index_epoch = log_.epoch_at(applied_until_),
          .state = state_->snapshot(),
          .applied = applied_};
  const uint64_t size = made.state->size();
  made.count = std::max<uint64_t>(1, (size + options_.piece_bytes - 1) / options_.piece_bytes);
  follower.kept = applied_until_;
}

void Replica::ship_pieces(NodeId to, Transfer& transfer) {
  for (; transfer.has_more(); ++transfer.sent) {
    const uint64_t first = transfer.sent * options_.piece_bytes;
    const uint64_t most = transfer.state->size() - first;
    SnapshotPiece piece{.epoch = epoch_,
                        .number = transfer.number,
                        .index = transfer.index,
                        .index_epoch = transfer.index_epoch,
                        .place = transfer.sent,
                        .count = transfer.count};
    piece.bytes = transfer.state->bytes(first, std::min<uint64_t>(options_.piece_bytes, most));
    if (piece.place == 0) piece.applied = transfer.applied;
    send(to, std::move(piece));
  }
}

void Replica::on(NodeId from, const SnapshotTaken& taken) {
  if (taken.epoch > epoch_) return follow(taken.epoch);
  const auto follower = followers_.find(from);
  const auto found = transfers_.find(from);
  if (role_ != Role::kPrimary || taken.epoch < epoch_ || follower == followers_.end() ||
      found == transfers_.end()) {
    return;
  }
  Transfer& transfer = found->second;
  if (taken.number != transfer.number || taken.pieces <= transfer.taken) return;
  // Only who gets on counts as one that lives: the log is kept for it.
  transfer.taken = std::min(taken.pieces, transfer.count);
  transfer.sent = std::max(transfer.sent, transfer.taken);
  transfer.window = std::min(transfer.window + 1, options_.pieces);
  follower->second.heard = now_;
  follower->second.wait = options_.resend;
  if (transfer.has_more()) ship(from, follower->second);
}

void Replica::on(NodeId from, const SnapshotPiece& piece) {
  if (is_fenced(piece.epoch)) return;
  if (piece.epoch > epoch_) follow(piece.epoch);
  if (piece.index <= applied_until_) {
    incoming_.reset();
    return send(from, Appended{.epoch = piece.epoch, .last = piece.index});
  }
  if (!incoming_ || incoming_->from != from || incoming_->number < piece.number) {
    incoming_ = Incoming{.from = from, .number = piece.number};
  }
  Incoming& in = *incoming_;
  if (piece.number < in.number) return;  // it was late
  if (piece.place >= in.taken && piece.place < in.taken + options_.pieces) {
    if (piece.place == 0) in.applied = piece.applied;
    in.pieces[piece.place] = piece.bytes;
  }
  while (in.pieces.count(in.taken) > 0) ++in.taken;
  if (in.taken == piece.count) return restore(piece);
  send(from, SnapshotTaken{.epoch = piece.epoch, .number = piece.number, .pieces = in.taken});
}

void Replica::restore(const SnapshotPiece& last) {
  // What is behind it may have been acknowledged by this node, so it stays where it fits.
  if (!log_.has(last.index, last.index_epoch)) {
    log_.begin_behind(last.index, last.index_epoch);
  }
  std::vector<Bytes> pieces;
  for (auto& [place, bytes] : incoming_->pieces) pieces.push_back(std::move(bytes));
  state_->restore(std::move(pieces));
  applied_ = std::move(incoming_->applied);
  applied_until_ = last.index;
  committed_ = std::max(committed_, last.index);
  const NodeId from = incoming_->from;
  incoming_.reset();
  send(from, Appended{.epoch = last.epoch, .last = last.index});
}

}  // namespace cohort::internal::replication
