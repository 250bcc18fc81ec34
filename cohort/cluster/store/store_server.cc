// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store_server.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/cluster/store/group_keeper.h"
#include "cohort/cluster/store/store_keeper.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/errors.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::cluster {
namespace {

// What an answer may take beyond what the question waits for.
constexpr std::chrono::milliseconds kStoreAnswer{10'000};

}  // namespace

struct StoreServer::Impl {
  explicit Impl(StoreServerOptions options)
      : server({.address = std::move(options.address), .security = std::move(options.security)},
               methods()) {}

  std::map<std::string, rpc::RpcHandler> methods() {
    std::map<std::string, rpc::RpcHandler> out;
    for (const StoreVerb verb : kStoreVerbs) {
      out[store_verb_name(verb)] = [this, verb](const rpc::RpcRequest& asked,
                                                const rpc::RpcReply& reply) {
        StoreRequest request = decode_store_request(verb, asked.payload.text());
        request.task = asked.caller.task;
        request.generation = asked.caller.generation;
        keeper.ask(request, [reply](const StoreReply& answer) {
          if (answer.code == ErrorCode::kOk) return reply.send(rpc::Payload(encode(answer)));
          reply.fail(Error(answer.code, answer.text));
        });
      };
    }
    out[kGroupMethod] = [this](const rpc::RpcRequest& asked, const rpc::RpcReply& reply) {
      reply.send(rpc::Payload(groups.ask(asked.payload.text())));
    };
    return out;
  }

  StoreKeeper keeper;
  GroupKeeper groups;
  const std::shared_ptr<Store> store = keeper.store();
  rpc::RpcServer server;  // last: it ends first
};

StoreServer::StoreServer(StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
StoreServer::~StoreServer() = default;
std::string StoreServer::address() const { return impl_->server.address(); }
int StoreServer::port() const { return impl_->server.port(); }
const std::shared_ptr<Store>& StoreServer::store() const { return impl_->store; }
void StoreServer::close(const std::string& why) { impl_->keeper.close(why); }

struct StoreClient::Impl {
  explicit Impl(StoreClientOptions given)
      : options(std::move(given)),
        client({.address = options.address,
                .server_name = str_cat("the job's store, which ", options.keeper, " keeps,"),
                .security = options.security,
                .claims = {.task = options.task}}) {}

  StoreReply ask(const StoreRequest& request, const rpc::RpcCallOptions& how) {
    const rpc::Payload answer =
        client.call(store_verb_name(request.verb), rpc::Payload(encode(request)), how);
    return decode_store_reply(answer.text());
  }

  const StoreClientOptions options;
  rpc::RpcClient client;
  uint64_t generation = 0;
};

StoreClient::StoreClient(StoreClientOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))),
      store_(std::make_shared<Store>([impl = impl_](const StoreRequest& request) {
        return impl->ask(request, {.timeout = request.wait + kStoreAnswer});
      })) {
  const StoreClientOptions& o = impl_->options;
  if (o.task.empty()) return;
  const StoreReply joined =
      impl_->ask({.verb = StoreVerb::kJoin, .value = o.task_address, .lease = o.lease},
                 {.timeout = o.start_timeout, .wait_for_server = true});
  impl_->generation = static_cast<uint64_t>(joined.number);
  impl_->client.set_claims({.task = o.task, .generation = impl_->generation});
}

StoreClient::~StoreClient() { cancel(); }

const std::shared_ptr<Store>& StoreClient::store() const { return store_; }
uint64_t StoreClient::generation() const { return impl_->generation; }
const StoreClientOptions& StoreClient::options() const { return impl_->options; }

StoreReply StoreClient::heartbeat(int64_t version, const std::string& doing,
                                  const std::string& pace, std::chrono::milliseconds hold,
                                  std::chrono::milliseconds timeout) {
  return impl_->ask({.verb = StoreVerb::kHeartbeat,
                     .value = doing,
                     .pace = pace,
                     .number = version,
                     .wait = hold},
                    {.timeout = hold + timeout});
}

std::vector<StoreMember> StoreClient::members(std::chrono::milliseconds timeout) {
  return impl_->ask({.verb = StoreVerb::kMembers}, {.timeout = timeout}).members;
}

void StoreClient::check_may_write(std::chrono::milliseconds timeout) {
  // The store's own answer comes before the call's deadline, if it is there.
  const auto wait = timeout * 3 / 4;
  impl_->ask({.verb = StoreVerb::kMayWrite, .wait = wait}, {.timeout = timeout});
}

void StoreClient::leave(std::chrono::milliseconds timeout) {
  impl_->ask({.verb = StoreVerb::kLeave}, {.timeout = timeout});
}

void StoreClient::cancel() { impl_->client.cancel(); }

}  // namespace cohort::internal::cluster
