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

namespace cohort::internal {
namespace {

using std::chrono::milliseconds;

// A good end is told, if the store answers at once.
constexpr milliseconds kGoodbyeWithin{500};
// How long who keeps the store stays behind its goodbye: a heartbeat that was under way asks again.
constexpr milliseconds kKeeperStays{50};

std::string liveness_seconds(std::chrono::steady_clock::duration time) {
  const auto ms = std::chrono::duration_cast<milliseconds>(time);
  return str_cat(static_cast<double>(ms.count()) / 1000, " s");
}

}  // namespace

Liveness::Liveness(std::shared_ptr<StoreClient> client, Communicator& communicator,
                   LivenessOptions options)
    : client_(std::move(client)),
      communicator_(communicator),
      options_(std::move(options)),
      acknowledged_(Clock::now()),
      generations_(options_.tasks.size()),
      files_([this] { communicator_.check_lease(); }),
      thread_("cohort_lease", [this](const std::stop_token& stop) { watch(stop); }) {}

Liveness::~Liveness() {
  thread_.request_stop();
  try {
    client_->leave(std::min(kGoodbyeWithin, client_->options().lease));
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    if (client_->options().keeper == options_.tasks[rank]) {
      std::this_thread::sleep_for(kKeeperStays);
    }
  } catch (const std::exception&) {
    // The store has ended before, or this task is out already.
  }
  client_->cancel();
  thread_.join();
  communicator_.set_lease(Clock::time_point::max());
}

std::string Liveness::me() const {
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  return str_cat(options_.tasks[rank], " (", options_.addresses[rank], ")");
}

void Liveness::watch(const std::stop_token& stop) {
  const milliseconds lease = client_->options().lease;
  communicator_.set_lease(acknowledged_ + lease);
  while (!stop.stop_requested()) {
    const auto left = acknowledged_ + lease - Clock::now();
    if (left <= Clock::duration::zero()) return give_up_store();
    if (!beat(stop, std::chrono::ceil<milliseconds>(left)) || store_has_ended_) return;
    if (last_error_.empty()) continue;
    // What failed at once is not tried at once again.
    const auto rest = acknowledged_ + lease - Clock::now();
    const MutexLock lock(mutex_);
    ended_.wait_for(mutex_, stop, std::min<Clock::duration>(rest, options_.heartbeat / 2),
                    [] { return false; });
  }
}

// One heartbeat, which the store holds until it has news or the next one is due. Takes no longer
// than what is left of the lease. False: the end.
bool Liveness::beat(const std::stop_token& stop, milliseconds left) {
  const auto sent = Clock::now();
  const bool looks = looks_.load();
  if (looks && !std::exchange(has_looked_, true)) version_ = 0;  // all members once more
  try {
    const milliseconds hold = std::min(options_.heartbeat, left / 2);
    const StoreReply reply =
        client_->heartbeat(version_, communicator_.doing(), hold, std::min(left - hold, left / 2));
    // An answer that was read too late, by a process that was stopped, does not count.
    if (Clock::now() - acknowledged_ > client_->options().lease) return true;
    acknowledged_ = sent;
    communicator_.set_lease(sent + client_->options().lease);
    version_ = reply.number;
    last_error_.clear();
    if (looks && !is_over_) is_over_ = !look_at(reply.members);
    return true;
  } catch (const FailedPrecondition& e) {
    if (!stop.stop_requested()) give_up(ErrorCode::kFailedPrecondition, e.what());
    return false;
  } catch (const std::exception& e) {
    last_error_ = e.what();
  }
  return true;
}

void Liveness::give_up_store() {
  const StoreClientOptions& store = client_->options();
  give_up(
      ErrorCode::kUnavailable,
      str_cat("[liveness] ", me(), " has had no answer for ",
              liveness_seconds(Clock::now() - acknowledged_), " (the lease is ",
              liveness_seconds(store.lease), ") from the job's store at ", store.address,
              ", which ", store.keeper,
              " keeps: that one hangs, is stopped or cut off, or this process was; it is ",
              communicator_.doing(),
              ". Nothing that it does counts any more: end it, and start the job again from its "
              "last checkpoint",
              last_error_.empty() ? "" : "; the last error was: ", last_error_));
}

// Nobody waits for anybody here any more.
void Liveness::give_up(ErrorCode code, const std::string& text) {
  std::vector<int> others(options_.tasks.size());
  std::iota(others.begin(), others.end(), 0);
  communicator_.lose(others, {.code = code, .text = text, .rank = communicator_.rank()});
}

// False: somebody is out of the job, and its generation has ended.
bool Liveness::look_at(const std::vector<StoreMember>& members) {
  for (const StoreMember& member : members) {
    const auto found = std::find(options_.tasks.begin(), options_.tasks.end(), member.task);
    if (found == options_.tasks.end()) continue;
    const auto rank = static_cast<int>(found - options_.tasks.begin());
    if (rank == communicator_.rank()) continue;
    if (member.state == StoreMember::State::kLeft && client_->options().keeper == member.task) {
      // Nobody is left there who could give this rank up.
      store_has_ended_ = true;
      communicator_.set_lease(Clock::time_point::max());
      return true;
    }
    uint64_t& known = generations_[static_cast<std::size_t>(rank)];
    const uint64_t before = std::exchange(known, member.generation);
    const bool is_replaced = before != 0 && before != member.generation;
    const bool is_dead = member.state == StoreMember::State::kDead;
    if (!is_dead && !is_replaced) continue;
    const std::string who =
        str_cat(member.task, " (", options_.addresses[static_cast<std::size_t>(rank)], ")");
    const std::string what =
        is_dead ? str_cat(" has not been heard of for ", liveness_seconds(member.silent),
                          " (its lease is ", liveness_seconds(client_->options().lease),
                          "); it was last ", member.doing)
                : str_cat(" was started again, as process ", member.generation, " of this task");
    communicator_.lose(
        std::array{rank},
        {.code = ErrorCode::kUnavailable,
         .text = str_cat("[liveness] ", who, what, "; ", me(), " is ", communicator_.doing(),
                         ". The process of ", member.task,
                         " hangs, is stopped or cut off: see its output, end it, and start the job "
                         "again from its last checkpoint (rank ",
                         rank, " of ", communicator_.size(), ")"),
         .rank = rank});
    return false;
  }
  return true;
}

namespace {

// How all ranks reach the store, as rank 0 tells them.
struct StoreNews {
  std::array<char, 256> address = {};
  std::array<char, 64> keeper = {};
  std::array<unsigned char, 32> token = {};  // where it was drawn for this job
  uint8_t has_token = 0;
};

template <std::size_t kSize>
void copy_text(const std::string& text, std::array<char, kSize>& to) {
  COHORT_CHECK_ARG(text.size() < kSize, "[liveness] expected a name of fewer than ", kSize,
                   " bytes, got \"", text, "\"");
  std::copy(text.begin(), text.end(), to.begin());
}

// What a watched communicator has beside it; the last member ends first.
struct Watched {
  std::optional<StoreServer> server;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<StoreClient> client;
  std::optional<Liveness> liveness;
};

// Rank 0's own store, reachable where it is reachable itself.
void start_store(Watched& watched, const LivenessOptions& options, RpcSecurity& security,
                 StoreNews& news) {
  const std::string& own = options.addresses[0];
  const std::string host = own.substr(0, own.rfind(':'));
  const bool is_local = is_loopback_target(own);
  if (security.token.empty()) {
    security.token = Secret::random();
    std::copy_n(security.token.bytes().begin(), news.token.size(), news.token.begin());
    news.has_token = 1;
  }
  watched.server.emplace(
      StoreServerOptions{.address = is_local && !security.has_tls() ? "127.0.0.1:0" : "0.0.0.0:0",
                         .security = security});
  copy_text(
      str_cat(is_local && !security.has_tls() ? "127.0.0.1" : host, ":", watched.server->port()),
      news.address);
  copy_text(options.tasks[0], news.keeper);
}

void join_store(Watched& watched, const LivenessOptions& options) {
  Communicator& communicator = *watched.communicator;
  RpcSecurity security = security_from_environment();
  security.allow_insecure |= options.allow_insecure;
  StoreNews news;
  if (communicator.rank() == 0) {
    const char* named = std::getenv(kStoreVariable);
    if (named != nullptr && *named != '\0') {
      copy_text(named, news.address);
      copy_text("the launcher", news.keeper);
    } else {
      start_store(watched, options, security, news);
    }
  }
  communicator.broadcast(std::as_writable_bytes(std::span(&news, 1)), 0);
  if (news.has_token != 0) {
    security.token = Secret({reinterpret_cast<const char*>(news.token.data()), news.token.size()});
  }
  const auto rank = static_cast<std::size_t>(communicator.rank());
  watched.client =
      std::make_shared<StoreClient>(StoreClientOptions{.address = news.address.data(),
                                                       .keeper = news.keeper.data(),
                                                       .security = security,
                                                       .task = options.tasks[rank],
                                                       .task_address = options.addresses[rank],
                                                       .lease = options.lease,
                                                       .start_timeout = options.start_timeout});
  communicator.set_store(watched.client->store());
  watched.liveness.emplace(watched.client, communicator, options);
  communicator.barrier();  // who looks for the others finds all of them
  watched.liveness->look();
}

}  // namespace

std::shared_ptr<Communicator> watch_over(std::unique_ptr<Communicator> communicator,
                                         const LivenessOptions& options) {
  COHORT_CHECK_ARG(
      options.heartbeat.count() > 0 && options.lease >= 2 * options.heartbeat,
      "[liveness] expected a heartbeat of more than 0 ms and a lease of at least two of "
      "them, got ",
      options.heartbeat.count(), " ms and ", options.lease.count(), " ms");
  auto watched = std::make_shared<Watched>();
  watched->communicator = std::move(communicator);
  Communicator* const inner = watched->communicator.get();
  inner->guard("liveness", [&] { join_store(*watched, options); });
  return {watched, inner};
}

}  // namespace cohort::internal
