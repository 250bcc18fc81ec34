// SPDX-License-Identifier: Apache-2.0
#include "door.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using nlohmann::json;

constexpr int kVersion = 3;
// Who has not said yet who it is; more than that many wait outside.
constexpr std::size_t kMostGuests = 64;
constexpr std::chrono::seconds kRefusalLimit{1};
// Its place is one whose loss has not been told yet.
constexpr const char* kLater = "later";

}  // namespace

std::string to_json(const Hello& hello) {
  return json{{"version", kVersion},
              {"job", hello.job},
              {"node", hello.node_rank},
              {"slots", hello.slots},
              {"nodes", hello.nodes}}
      .dump();
}

Door::Door(int listening, std::string job, int nodes, cohort::internal::rpc::TlsContext tls)
    : listening_(listening), job_(std::move(job)), nodes_(nodes), tls_(std::move(tls)) {}

Door::~Door() { ::close(listening_); }

void Door::add_polled(std::vector<pollfd>* polled) const {
  if (guests_.size() < kMostGuests) {
    polled->push_back({.fd = listening_, .events = POLLIN, .revents = 0});
  }
  for (const Guest& each : guests_) {
    polled->push_back({.fd = each.channel.fd(), .events = POLLIN, .revents = 0});
  }
}

std::string Door::let_in(Guest& guest, const std::string& text,
                         const std::vector<RemoteNode*>& nodes) const {
  Hello hello;
  try {
    const json parsed = json::parse(text);
    const int version = parsed.at("version");
    if (version != kVersion) {
      return str_cat("expected a cohortrun of version ", kVersion, " of the protocol, got ",
                     version);
    }
    hello.job = parsed.at("job").get<std::string>();
    hello.node_rank = parsed.at("node").get<int>();
    hello.slots = parsed.at("slots").get<int>();
    hello.nodes = parsed.at("nodes").get<int>();
  } catch (const json::exception&) {
    return "expected a cohortrun's greeting";
  }
  if (hello.job != job_) {
    return str_cat("expected a node of job \"", job_, "\" (--rdzv-id), got one of \"", hello.job,
                   "\"");
  }
  // Some would begin without those for whom the others wait.
  if (hello.nodes != nodes_) {
    return str_cat("expected --nnodes ", nodes_, ", as the first node has it, got ", hello.nodes);
  }
  if (hello.slots < 1 || hello.slots > 10'000) return "expected 1 to 10000 tasks";
  if (hello.node_rank >= nodes_) {
    return str_cat("expected --node-rank below --nnodes ", nodes_, ", got ", hello.node_rank);
  }
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    if (hello.node_rank >= 0 && static_cast<int>(n) != hello.node_rank) continue;
    nodes[n]->look();
    if (nodes[n]->is_there()) continue;
    if (!nodes[n]->is_free()) return kLater;
    nodes[n]->rename(guest.from);
    nodes[n]->attach(std::move(guest.channel), hello.slots, 0);
    return {};
  }
  return hello.node_rank < 0 ? str_cat("all ", nodes_, " nodes are there")
                             : str_cat("node ", hello.node_rank, " is there already");
}

void Door::step(const std::vector<RemoteNode*>& nodes) {
  while (guests_.size() < kMostGuests) {
    std::string from;
    const int fd = accept_from(listening_, &from);
    if (fd < 0) break;
    guests_.push_back({.channel = Channel(fd, tls_, cohort::internal::rpc::TlsSide::kServer),
                       .from = std::move(from)});
  }
  for (Guest& guest : guests_) {
    guest.channel.read();
    if (!guest.greeting) guest.greeting = guest.channel.next();
    if (!guest.greeting && !guest.channel.is_open() && !guest.channel.why().empty()) {
      std::fprintf(stderr, "cohortrun: a caller from %s was turned away: %s\n", guest.from.c_str(),
                   guest.channel.why().c_str());
    }
    if (!guest.greeting) continue;
    const std::string why = guest.greeting->kind == Kind::kHello
                                ? let_in(guest, guest.greeting->body, nodes)
                                : "expected a cohortrun's greeting";
    if (why.empty() || why == kLater) continue;
    guest.channel.send(Kind::kRefuse, why, kRefusalLimit);
    guest.channel.close();
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.channel.is_open(); });
}

}  // namespace cohortrun
