// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/liveness.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/base/process_mark.h"
#include "cohort/base/running_time.h"
#include "cohort/cluster/store/state_text.h"

namespace cohort::internal::collectives {
namespace {

using std::chrono::milliseconds;

// A good end is told, if the store answers soon.
constexpr milliseconds kGoodbyeWithin{2000};
// Beyond a lease, within which who does not answer is out.
constexpr milliseconds kStoreAnswersWithin{1000};
// How long who keeps the store stays behind its goodbye: a heartbeat that was under way asks again.
constexpr milliseconds kKeeperStays{50};

}  // namespace

void check_leases(const LivenessOptions& options) {
  COHORT_CHECK_ARG(
      options.heartbeat.count() > 0 && options.lease >= 2 * options.heartbeat,
      "[liveness] expected a heartbeat of more than 0 ms and a lease of at least two of "
      "them, got ",
      options.heartbeat.count(), " ms and ", options.lease.count(), " ms");
}

Liveness::Liveness(std::shared_ptr<cluster::StoreClient> client, Communicator& communicator,
                   LivenessOptions options)
    : client_(std::move(client)),
      communicator_(communicator),
      options_(std::move(options)),
      acknowledged_(Clock::now()),
      generations_(options_.tasks.size()),
      stragglers_(options_.straggler_ratio),
      files_([this] { check_may_write(); }),
      thread_("cohort_lease", [this](const std::stop_token& stop) { watch(stop); }) {
  communicator_.set_others_report([this] { return report_of_others(); });
}

Liveness::~Liveness() {
  communicator_.set_others_report(nullptr);
  thread_.request_stop();
  try {
    client_->leave(std::min(kGoodbyeWithin, client_->options().lease));
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    if (client_->options().keeper == options_.tasks[rank]) {
      std::this_thread::sleep_for(kKeeperStays);
    }
  } catch (const FailedPrecondition& e) {
    note_out(e.what());  // nobody has asked since
  } catch (const std::exception&) {
    // The store has ended before.
  }
  client_->cancel();
  thread_.join();
  communicator_.set_lease(Clock::time_point::max());
  const base::MutexLock lock(mutex_);
  if (!why_out_.empty()) base::forbid_writes(why_out_);
}

std::string Liveness::me() const {
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  return str_cat(options_.tasks[rank], " (", options_.addresses[rank], ")");
}

// How long the store's silence is still borne. What this process itself was stopped, or its machine
// suspended, is no silence of the store's.
struct Liveness::Patience {
  milliseconds left;
  Clock::time_point begun = Clock::now();
  milliseconds planned{0};  // what is done since begun takes no longer, unless it is stopped

  void begin() {
    begun = Clock::now();
    planned = {};
  }
  void end() {
    const auto took = std::chrono::ceil<milliseconds>(Clock::now() - begun);
    left -= std::min(took, planned + base::RunningTime::kPause);
  }
};

void Liveness::watch(const std::stop_token& stop) {
  const milliseconds lease = client_->options().lease;
  communicator_.set_lease(acknowledged_ + lease);
  Patience patience{.left = lease};
  while (!stop.stop_requested()) {
    if (patience.left.count() <= 0) return give_up_store();
    patience.begin();
    if (!beat(stop, patience) || store_has_ended_.load()) return;
    if (last_error_.empty()) {
      patience.left = lease;  // since the question was sent
      patience.end();
      continue;
    }
    // What failed at once is not tried at once again.
    const milliseconds rest = std::min(patience.left, options_.heartbeat / 2);
    patience.planned += rest;
    {
      const base::MutexLock lock(mutex_);
      ended_.wait_for(mutex_, stop, rest, [] { return false; });
    }
    patience.end();
  }
}

// One heartbeat, which the store holds until it has news or the next one is due. Takes no longer
// than what is left of patience. False: the end.
bool Liveness::beat(const std::stop_token& stop, Patience& patience) {
  const auto sent = Clock::now();
  const bool looks = looks_.load();
  if (looks && !std::exchange(has_looked_, true)) version_ = 0;  // all members once more
  try {
    const milliseconds hold = std::min(options_.heartbeat, patience.left / 2);
    const milliseconds beyond = std::min(patience.left - hold, patience.left / 2);
    patience.planned = hold + beyond;
    const cluster::StoreReply reply = client_->heartbeat(version_, communicator_.doing(),
                                                         communicator_.pace().text(), hold, beyond);
    acknowledged_ = sent;
    communicator_.set_lease(sent + client_->options().lease);
    version_ = reply.number;
    last_error_.clear();
    if (looks && !is_over_) is_over_ = !look_at(reply.members);
    if (looks && !is_over_) look_for_stragglers();
    return true;
  } catch (const FailedPrecondition& e) {
    if (stop.stop_requested()) return false;
    note_out(e.what());
    give_up(ErrorCode::kFailedPrecondition, e.what());
    return false;
  } catch (const std::exception& e) {
    last_error_ = str_cat(" ", e.what());
  }
  return true;
}

void Liveness::note_out(const std::string& why) {
  const base::MutexLock lock(mutex_);
  if (why_out_.empty()) why_out_ = why;
}

// The store's word counts, if there is one: whatever this process's clock says, it may have been
// stopped until just now.
void Liveness::check_may_write() {
  {
    const base::MutexLock lock(mutex_);
    if (!why_out_.empty()) throw FailedPrecondition(why_out_);
  }
  if (store_has_ended_.load()) return;
  try {
    return client_->check_may_write(client_->options().lease + kStoreAnswersWithin);
  } catch (const FailedPrecondition&) {
    throw;
  } catch (const std::exception&) {
    communicator_.check_lease();
  }
}

void Liveness::give_up_store() {
  const cluster::StoreClientOptions& store = client_->options();
  note_out(str_cat("[liveness] ", me(), " is too late: it has had no answer for ",
                   cluster::store_seconds(Clock::now() - acknowledged_),
                   " from the job's store at ", store.address,
                   ", longer than its lease, so it must not write any more; end it, "
                   "and start the job again from its last checkpoint"));
  give_up(
      ErrorCode::kUnavailable,
      str_cat("[liveness] ", me(), " has had no answer for ",
              cluster::store_seconds(Clock::now() - acknowledged_), " (the lease is ",
              cluster::store_seconds(store.lease), ") from the job's store at ", store.address,
              ", which ", store.keeper,
              " keeps: that one hangs, is stopped or cut off, or this process was; it is ",
              communicator_.doing(),
              ". Nothing that it does counts any more: end it, and start the job again from its "
              "last checkpoint",
              last_error_.empty() ? "" : "; the last error was:", last_error_));
}

// Nobody waits for anybody here any more.
void Liveness::give_up(ErrorCode code, const std::string& text) {
  std::vector<int> others(options_.tasks.size());
  std::iota(others.begin(), others.end(), 0);
  communicator_.lose(others, {.code = code, .text = text, .rank = communicator_.rank()});
}

// False: somebody is out of the job, and its generation has ended.
bool Liveness::look_at(const std::vector<cluster::StoreMember>& members) {
  for (std::size_t r = 0; r < options_.tasks.size(); ++r) {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](const cluster::StoreMember& member) {
          return member.task == options_.tasks[r] + options_.member_suffix;
        });
    if (found == members.end() || static_cast<int>(r) == communicator_.rank()) continue;
    if (found->state == cluster::StoreMember::State::kLeft &&
        client_->options().keeper == options_.tasks[r]) {
      // Nobody is left there who could give this rank up.
      store_has_ended_.store(true);
      communicator_.set_lease(Clock::time_point::max());
      return true;
    }
    const uint64_t before = std::exchange(generations_[r], found->generation);
    const bool is_replaced = before != 0 && before != found->generation;
    if (found->state != cluster::StoreMember::State::kDead && !is_replaced) continue;
    tell_lost(*found, static_cast<int>(r));
    return false;
  }
  return true;
}

// The chief's, as all that is printed.
void Liveness::look_for_stragglers() {
  const uint64_t window = communicator_.pace().window;
  if (communicator_.rank() != 0 || options_.straggler_ratio <= 0 || window == looked_at_window_) {
    return;
  }
  std::vector<Pace> paces(options_.tasks.size());
  std::vector<std::string> names;
  std::vector<cluster::StoreMember> members;
  try {
    members = client_->members(options_.heartbeat);
  } catch (const std::exception&) {
    return;  // the next heartbeat says what it is
  }
  for (std::size_t r = 0; r < paces.size(); ++r) {
    names.push_back(str_cat(options_.tasks[r], " (", options_.addresses[r], ")"));
    for (const cluster::StoreMember& member : members) {
      if (member.task == options_.tasks[r] + options_.member_suffix) {
        paces[r] = Pace::of(member.pace);
      }
    }
  }
  paces[0] = communicator_.pace();
  // Those who have not told of this window yet do so with their next heartbeats.
  const bool all_told = std::all_of(paces.begin(), paces.end(),
                                    [&](const Pace& pace) { return pace.window >= window; });
  if (all_told) looked_at_window_ = window;
  for (const std::string& line : stragglers_.look_at(paces, names)) {
    COHORT_LOG(kWarning, "[liveness] ", line);
  }
}

std::string Liveness::report_of_others() {
  std::string out = "the others, as the job's store knows them:\n";
  try {
    for (const cluster::StoreMember& member : client_->members(kGoodbyeWithin)) {
      out += str_cat("  ", member.task, " (", member.address, ") was ",
                     cluster::store_seconds(member.silent), " ago ",
                     member.doing.empty() ? "not in a step yet" : member.doing, "\n");
    }
  } catch (const std::exception& e) {
    out += str_cat("  nothing: ", e.what(), "\n");
  }
  return out;
}

void Liveness::tell_lost(const cluster::StoreMember& member, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  const std::string& task = options_.tasks[at];
  const std::string what =
      member.state == cluster::StoreMember::State::kDead
          ? str_cat(" has not been heard of for ", cluster::store_seconds(member.silent),
                    " (its lease is ", cluster::store_seconds(client_->options().lease),
                    "); as of its last heartbeat it was ", member.doing)
          : str_cat(" was started again, as process ", member.generation, " of this task");
  communicator_.lose(
      std::array{rank},
      {.code = ErrorCode::kUnavailable,
       .text = str_cat("[liveness] ", task, " (", options_.addresses[at], ")", what, "; ", me(),
                       " is ", communicator_.doing(), ". The process of ", task,
                       " hangs, is stopped or cut off: see its output, end it, and start the job "
                       "again from its last checkpoint (rank ",
                       rank, " of ", communicator_.size(), ")"),
       .rank = rank});
}

namespace {

// How all ranks reach the store, as rank 0 tells them.
struct StoreNews {
  std::array<char, 256> address = {};
  std::array<char, 64> keeper = {};
  std::array<unsigned char, 32> token = {};  // where it was drawn for this job
  uint8_t has_token = 0;
  // Of a store that outlives this strategy: which of rank 0's this one is, and what keys begin
  // with.
  uint32_t number = 0;
  uint64_t keys = 0;
};

// Of this process, with a store of the launcher's.
constinit std::atomic<uint32_t> g_strategies{0};

template <std::size_t kSize>
void copy_text(const std::string& text, std::array<char, kSize>& to) {
  COHORT_CHECK_ARG(text.size() < kSize, "[liveness] expected a name of fewer than ", kSize,
                   " bytes, got \"", text, "\"");
  std::copy(text.begin(), text.end(), to.begin());
}

// What a watched communicator has beside it; the last member ends first.
struct Watched {
  std::optional<cluster::StoreServer> server;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<cluster::StoreClient> client;
  std::optional<Liveness> liveness;
};

// Rank 0's own store, reachable where it is reachable itself.
void start_store(Watched& watched, const LivenessOptions& options, rpc::RpcSecurity& security,
                 StoreNews& news) {
  const std::string& own = options.addresses[0];
  const std::string host = own.substr(0, own.rfind(':'));
  const bool is_local = rpc::is_loopback_target(own);
  if (security.token.empty()) {
    security.token = rpc::Secret::random();
    std::copy_n(security.token.bytes().begin(), news.token.size(), news.token.begin());
    news.has_token = 1;
  }
  watched.server.emplace(cluster::StoreServerOptions{
      .address = is_local && !security.has_tls() ? "127.0.0.1:0" : "0.0.0.0:0",
      .security = security});
  copy_text(
      str_cat(is_local && !security.has_tls() ? "127.0.0.1" : host, ":", watched.server->port()),
      news.address);
  copy_text(options.tasks[0], news.keeper);
}

// The launcher's, which other strategies and other starts of the job use, too.
void name_store(const char* address, const rpc::RpcSecurity& security, StoreNews& news) {
  const bool is_open = security.token.empty() && !security.has_tls();
  COHORT_CHECK_ARG(!is_open || rpc::is_loopback_target(address), "[liveness] expected ",
                   cluster::kStoreVariable, "=", address,
                   " to come with a secret of the job's in COHORT_JOB_TOKEN or "
                   "COHORT_JOB_TOKEN_FILE, or with TLS certificates, got none of them: anybody who "
                   "reaches that address could say that it is a worker");
  if (is_open) {
    COHORT_LOG(kWarning, "[liveness] ", cluster::kStoreVariable, "=", address,
               " without COHORT_JOB_TOKEN: every user of this machine can take part in the job");
  }
  copy_text(address, news.address);
  copy_text("the launcher", news.keeper);
  news.number = ++g_strategies;
  std::memcpy(&news.keys, rpc::Secret::random().bytes().data(), sizeof news.keys);
}

// What all ranks are told by rank 0, who knows or keeps the store.
StoreNews tell_store(Watched& watched, const LivenessOptions& options, rpc::RpcSecurity& security) {
  StoreNews news;
  if (watched.communicator->rank() == 0) {
    const char* named = std::getenv(cluster::kStoreVariable);
    if (named != nullptr && *named != '\0') {
      name_store(named, security, news);
    } else {
      start_store(watched, options, security, news);
    }
  }
  watched.communicator->broadcast(std::as_writable_bytes(std::span(&news, 1)), 0);
  if (news.has_token != 0) {
    security.token =
        rpc::Secret({reinterpret_cast<const char*>(news.token.data()), news.token.size()});
  }
  return news;
}

void join_store(Watched& watched, LivenessOptions options) {
  Communicator& communicator = *watched.communicator;
  rpc::RpcSecurity security = rpc::security_from_environment();
  security.allow_insecure |= options.allow_insecure;
  const StoreNews news = tell_store(watched, options, security);
  if (news.number > 1) options.member_suffix = str_cat(", strategy ", news.number);
  const auto rank = static_cast<std::size_t>(communicator.rank());
  watched.client = std::make_shared<cluster::StoreClient>(
      cluster::StoreClientOptions{.address = news.address.data(),
                                  .keeper = news.keeper.data(),
                                  .security = security,
                                  .task = options.tasks[rank] + options.member_suffix,
                                  .task_address = options.addresses[rank],
                                  .lease = options.lease,
                                  .start_timeout = options.start_timeout});
  const std::shared_ptr<cluster::Store>& whole = watched.client->store();
  communicator.set_store(news.number == 0
                             ? whole
                             : cluster::Store::under(str_cat("strategy ", news.keys, "/"), whole));
  watched.liveness.emplace(watched.client, communicator, options);
  base::allow_writes();    // whatever an earlier strategy of this process was told
  communicator.barrier();  // who looks for the others finds all of them
  watched.liveness->look();
}

}  // namespace

std::shared_ptr<Communicator> watch_over(std::unique_ptr<Communicator> communicator,
                                         const LivenessOptions& options) {
  check_leases(options);
  const auto watched = base::kept_to_this_process(std::make_unique<Watched>());
  watched->communicator = std::move(communicator);
  Communicator* const inner = watched->communicator.get();
  inner->guard("liveness", [&] { join_store(*watched, options); });
  return {watched, inner};
}

}  // namespace cohort::internal::collectives
