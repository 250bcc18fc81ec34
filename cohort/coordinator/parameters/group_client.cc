// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/group_client.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/replicated_state.h"
#include "cohort/rpc/security.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using GroupClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGroupPause{20};
// What stands ahead of an answer.
constexpr std::size_t kStatusRoom = 64;
// Whoever says so often that it cannot answer yet may have been replaced without knowing it.
constexpr int kMostAgains = 25;

uint64_t random_client() {
  const rpc::Secret random = rpc::Secret::random();
  uint64_t out = 0;
  std::memcpy(&out, random.bytes().data(), sizeof out);
  return out | 1;
}

// Who it is a client knows: no server that gives numbers outlives all others.
bool is_of_the_client(const std::string& method) {
  return method == "ps.open" || method == "ps.close";
}

}  // namespace

struct GroupClient::Impl {
  static constexpr const char* kNobodyYet = "no server has answered";
  class LaneCall;
  struct Call {
    std::string method;
    rpc::Payload request;
    GroupClock::time_point until;
    std::function<void(rpc::RpcResult)> done;
    std::string last = kNobodyYet;
    int agains = 0;
  };
  using Shared = std::shared_ptr<Call>;

  explicit Impl(GroupClientOptions given) : options(std::move(given)) {}

  void run() {
    runtime::set_thread_name("cohort-group");
    while (true) {
      std::vector<Shared> due;
      {
        const base::MutexLock lock(mutex);
        if (ends) break;
        if (again.empty()) {
          changed.wait(mutex);
        } else {
          changed.wait_until(mutex, again.begin()->first);
        }
        while (!again.empty() && again.begin()->first <= GroupClock::now()) {
          due.push_back(again.begin()->second);
          again.erase(again.begin());
        }
      }
      for (const Shared& each : due) send(each);
    }
    std::multimap<GroupClock::time_point, Shared> left;
    {
      const base::MutexLock lock(mutex);
      left.swap(again);
    }
    for (const auto& [time, call] : left) cancel(*call);
  }

  static void cancel(const Call& call) {
    call.done({.error = std::make_exception_ptr(Cancelled("[ps] the call was cancelled"))});
  }

  rpc::Payload to_group(const std::string& method, const rpc::Payload& of) const {
    rpc::MessageWriter header;
    header.number(static_cast<uint64_t>(options.group));
    header.text(method);
    rpc::Payload out = message(header);
    for (const rpc::Payload::Piece& piece : of.pieces()) out.append(piece);
    return out;
  }

  void send(const Shared& call) {
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(call->until - GroupClock::now());
    if (left <= milliseconds(0)) return give_up(*call);
    std::size_t member = 0;
    {
      const base::MutexLock lock(mutex);
      member = leader;
      ++in_flight;
    }
    options.members[member]->start("ps.group", to_group(call->method, call->request),
                                   {.timeout = std::min(left, options.one_try)},
                                   [this, call, member](const rpc::RpcResult& result) {
                                     take(call, member, result);
                                     const base::MutexLock lock(mutex);
                                     if (--in_flight == 0) changed.notify_all();
                                   });
  }

  // On a thread of gRPC's.
  void take(const Shared& call, std::size_t member, const rpc::RpcResult& result) {
    std::optional<rpc::RpcResult> answer = read(member, result, call->last, call->agains);
    answer ? call->done(std::move(*answer)) : again_later(call);
  }

  // Nothing: somebody is to be asked again.
  std::optional<rpc::RpcResult> read(std::size_t member, const rpc::RpcResult& result,
                                     std::string& last, int& agains) {
    try {
      if (result.error) std::rethrow_exception(result.error);
      GroupStatus status{};
      uint64_t hint = 0;
      rpc::RpcResult answer = read_group_answer(result.payload, status, hint);
      if (status == GroupStatus::kDone || status == GroupStatus::kError) return answer;
      last = str_cat("ps ", task_of(member), " does not lead them (yet)");
      if (status == GroupStatus::kNotPrimary) look_elsewhere(member, hint);
      if (status == GroupStatus::kAgain && ++agains % kMostAgains == 0) look_elsewhere(member, 0);
    } catch (const Unavailable& e) {
      last = e.what();
      look_elsewhere(member, 0);
    } catch (const DeadlineExceeded& e) {
      last = e.what();
      look_elsewhere(member, 0);
    } catch (...) {
      return rpc::RpcResult{.error = std::current_exception()};
    }
    return std::nullopt;
  }

  void again_later(const Shared& call) {
    {
      const base::MutexLock lock(mutex);
      if (!ends) {
        again.emplace(GroupClock::now() + kGroupPause, call);
        changed.notify_one();
        return;
      }
    }
    cancel(*call);
  }

  std::size_t task_of(std::size_t member) const {
    return (static_cast<std::size_t>(options.group) + member) % options.tasks;
  }

  // `hint`: the leader's task and 1.
  void look_elsewhere(std::size_t member, uint64_t hint) {
    const base::MutexLock lock(mutex);
    if (leader != member) return;  // somebody has
    std::size_t next = (member + 1) % options.members.size();
    for (std::size_t i = 0; hint > 0 && i < options.members.size(); ++i) {
      if (task_of(i) + 1 == hint) next = i;
    }
    leader = next;
  }

  void give_up(const Call& call) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < options.members.size(); ++i) {
      names.push_back(str_cat("ps ", task_of(i)));
    }
    const std::string first = names.front();
    for (std::size_t i = 0; i < std::min(names.size(), options.addresses.size()); ++i) {
      names[i] += str_cat(" (", options.addresses[i], ")");
    }
    call.done({.error = std::make_exception_ptr(Unavailable(
                   str_cat("[ps] expected one of ", join(names, ", "),
                           ", which have the copies of these variables, to lead them, got none; "
                           "the last thing heard: ",
                           call.last,
                           ". Where all of them are lost, start the job again, from its last "
                           "checkpoint"),
                   first))});
  }

  const GroupClientOptions options;
  const uint64_t client = random_client();
  base::Mutex mutex;
  std::condition_variable_any changed;
  bool ends COHORT_GUARDED_BY(mutex) = false;
  int in_flight COHORT_GUARDED_BY(mutex) = 0;
  std::size_t leader COHORT_GUARDED_BY(mutex) = 0;
  std::multimap<GroupClock::time_point, Shared> again COHORT_GUARDED_BY(mutex);
  std::thread thread;
};

class GroupClient::Impl::LaneCall final : public rpc::LaneCall {
 public:
  LaneCall(std::shared_ptr<Impl> of, std::size_t member, std::unique_ptr<rpc::LaneCall> call)
      : group_(std::move(of)), member_(member), call_(std::move(call)) {}
  bool is_over() override { return call_->is_over(); }
  void wait(GroupClock::time_point until) override { call_->wait(until); }
  std::optional<rpc::RpcResult> take() override {
    const std::optional<rpc::RpcResult> result = call_->take();
    if (!result) return std::nullopt;
    std::string last;
    int agains = 0;
    return group_->read(member_, *result, last, agains);
  }

 private:
  const std::shared_ptr<Impl> group_;
  const std::size_t member_;
  const std::unique_ptr<rpc::LaneCall> call_;
};

GroupClient::GroupClient(GroupClientOptions options)
    : rpc::RpcClient(options.first), group_(std::make_shared<Impl>(std::move(options))) {
  group_->thread = std::thread([impl = group_.get()] { impl->run(); });
}

GroupClient::~GroupClient() {
  {
    const base::MutexLock lock(group_->mutex);
    group_->ends = true;
    group_->changed.notify_all();
  }
  group_->thread.join();
  // A client must not end inside of what it calls, so it does not end with the last of these.
  const base::MutexLock lock(group_->mutex);
  group_->changed.wait(group_->mutex,
                       [this]() COHORT_REQUIRES(group_->mutex) { return group_->in_flight == 0; });
}

void GroupClient::start(const std::string& method, rpc::Payload request,
                        rpc::RpcCallOptions options, std::function<void(rpc::RpcResult)> done) {
  if (is_of_the_client(method)) {
    rpc::MessageWriter number;
    number.number(group_->client);
    return done({.error = {}, .payload = method == "ps.open" ? message(number) : message({})});
  }
  group_->send(std::make_shared<Impl::Call>(Impl::Call{.method = method,
                                                       .request = std::move(request),
                                                       .until = GroupClock::now() + options.timeout,
                                                       .done = std::move(done)}));
}

rpc::LaneStart GroupClient::start_in_lane(const std::string& method, const rpc::Payload& request,
                                          const rpc::RpcCallOptions& options) {
  if (is_of_the_client(method)) return {};
  std::size_t member = 0;
  {
    const base::MutexLock lock(group_->mutex);
    member = group_->leader;
  }
  rpc::LaneStart out = group_->options.members[member]->start_in_lane(
      "ps.group", group_->to_group(method, request),
      {.timeout = std::min(options.timeout, group_->options.one_try),
       .answer_bytes = options.answer_bytes + kStatusRoom,
       .answer_to = options.answer_to});
  if (out.call) {
    out.call = std::make_unique<Impl::LaneCall>(group_, member, std::move(out.call));
  }
  return out;
}

std::vector<std::shared_ptr<rpc::RpcClient>> group_clients(
    const std::vector<std::shared_ptr<rpc::RpcClient>>& servers,
    const std::vector<rpc::RpcClientOptions>& options, int replicas) {
  if (replicas <= 1) return servers;
  std::vector<std::shared_ptr<rpc::RpcClient>> out;
  for (std::size_t g = 0; g < servers.size(); ++g) {
    GroupClientOptions group{.group = static_cast<int>(g), .first = options[g]};
    for (std::size_t i = 0; i < static_cast<std::size_t>(replicas); ++i) {
      const std::size_t task = (g + i) % servers.size();
      group.members.push_back(servers[task]);
      group.addresses.push_back(options[task].address);
    }
    group.tasks = servers.size();
    out.push_back(std::make_shared<GroupClient>(std::move(group)));
  }
  return out;
}

}  // namespace cohort::internal::coordinator
