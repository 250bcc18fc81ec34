// SPDX-License-Identifier: Apache-2.0
#include "cohort/replication/client.h"

namespace cohort::internal::replication {

uint64_t Client::update(std::string bytes, Time now) {
  Sent& sent = updates_[++sequence_];
  sent = {.text = std::move(bytes), .ticket = ++tickets_};
  send_update(sequence_, sent, now);
  return sent.ticket;
}

uint64_t Client::read(std::string query, Time now) {
  Sent& sent = reads_[++tickets_];
  sent = {.text = std::move(query), .ticket = tickets_};
  send_read(tickets_, sent, now);
  return sent.ticket;
}

void Client::send_update(uint64_t sequence, Sent& sent, Time now) {
  sent.due = now + options_.resend;
  if (configuration_.primary == 0) return;
  outgoing_.push_back({configuration_.primary, Update{{.client = options_.id,
                                                       .sequence = sequence,
                                                       .oldest = updates_.begin()->first,
                                                       .bytes = sent.text}}});
}

void Client::send_read(uint64_t ticket, Sent& sent, Time now) {
  sent.due = now + options_.resend;
  if (configuration_.primary == 0) return;
  outgoing_.push_back({configuration_.primary, Read{ticket, sent.text}});
}

void Client::adopt(const Configuration& configuration, Time now) {
  if (configuration.epoch <= configuration_.epoch) return;
  configuration_ = configuration;
  for (auto& [sequence, sent] : updates_) send_update(sequence, sent, now);
  for (auto& [ticket, sent] : reads_) send_read(ticket, sent, now);
}

void Client::finish(std::map<uint64_t, Sent>& of, uint64_t key, const std::string& text) {
  const auto found = of.find(key);
  if (found == of.end()) return;  // the answer came twice
  results_.push_back({found->second.ticket, text});
  of.erase(found);
}

void Client::receive(NodeId /*from*/, const Message& message, Time now) {
  if (const auto* configured = std::get_if<Configured>(&message)) {
    adopt(configured->configuration, now);
  } else if (const auto* updated = std::get_if<Updated>(&message)) {
    finish(updates_, updated->sequence, updated->result);
  } else if (const auto* answer = std::get_if<ReadAnswer>(&message)) {
    finish(reads_, answer->ticket, answer->value);
  }
}

// Whoever does not answer may have been replaced.
void Client::advance(Time now) {
  bool asks = false;
  for (auto& [sequence, sent] : updates_) {
    if (now < sent.due) continue;
    asks = true;
    send_update(sequence, sent, now);
  }
  for (auto& [ticket, sent] : reads_) {
    if (now < sent.due) continue;
    asks = true;
    send_read(ticket, sent, now);
  }
  if (asks) outgoing_.push_back({options_.membership, Ask{}});
}

}  // namespace cohort::internal::replication
