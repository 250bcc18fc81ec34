// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/rpc/internal/grpc_parts.h"
#include "cohort/rpc/internal/lane_server.h"
#include "cohort/rpc/internal/reply_call.h"

namespace cohort::internal::rpc {
namespace {

using Reactor = grpc::ServerGenericBidiReactor;

// Of who connects and does not speak.
constexpr int kHandshakeMilliseconds = 5000;
// Of one connection; a task has one for all that it asks.
constexpr int kMostCallsOfOne = 1000;
constexpr int kMostHeaderBytes = 16 << 10;

Unavailable server_ends() { return {kServerEnds, "the server"}; }

}  // namespace

// What a handler holds of a call. gRPC's side goes on living until it has been answered.
struct ReactorCall final : RpcReply::Call {
  explicit ReactorCall(Reactor* asked) : reactor(asked) {}
  ~ReactorCall() override { finish(status_of(Internal(kDroppedCall))); }
  void send(const Payload& payload) override {
    Reactor* to = reactor.exchange(nullptr);
    if (to == nullptr) return;
    *answer = to_grpc(payload);
    to->StartWriteAndFinish(answer, grpc::WriteOptions(), grpc::Status::OK);
  }
  void fail(ErrorCode code, const std::string& text) override {
    finish({static_cast<grpc::StatusCode>(code), text});
  }
  void finish(const grpc::Status& status) {
    Reactor* to = reactor.exchange(nullptr);
    if (to != nullptr) to->Finish(status);
  }
  std::atomic<Reactor*> reactor;
  grpc::ByteBuffer* answer = nullptr;  // the reactor's
};

void RpcReply::send(Payload payload) const { call_->send(payload); }
void RpcReply::fail(const std::exception& error) const {
  const grpc::Status status = status_of(error);
  call_->fail(static_cast<ErrorCode>(status.error_code()), status.error_message());
}
RpcReply::Room RpcReply::room(std::size_t bytes) const { return call_->room(bytes); }

struct RpcServer::Impl final : grpc::CallbackGenericService {
  using HeldCall = std::weak_ptr<ReactorCall>;
  using HeldCalls = std::set<HeldCall, std::owner_less<>>;

  // One call: reads its message, has it handled, and ends when it has been answered.
  class CallReactor final : public Reactor {
   public:
    CallReactor(Impl* server, const RpcHandler& handler, RpcClaims caller)
        : server_(server),
          handler_(handler),
          caller_(std::move(caller)),
          call_(std::make_shared<ReactorCall>(this)) {
      call_->answer = &answer_;
      held_ = call_;
      if (server->enter(held_)) {
        StartRead(&request_);
      } else {
        call_->finish(status_of(server_ends()));
      }
    }
    void OnReadDone(bool ok) override {
      const auto call = std::exchange(call_, nullptr);
      if (!ok) return call->finish(status_of(Cancelled("the caller has sent no message")));
      try {
        handler_({.caller = std::move(caller_), .payload = from_grpc(request_)}, RpcReply(call));
      } catch (const std::exception& e) {
        call->finish(status_of(e));
      }
    }
    void OnDone() override {
      server_->leave(held_);
      delete this;
    }

   private:
    Impl* const server_;
    const RpcHandler& handler_;
    RpcClaims caller_;
    std::shared_ptr<ReactorCall> call_;
    HeldCall held_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer answer_;
  };

  class Refusal final : public Reactor {
   public:
    explicit Refusal(const std::exception& error) { Finish(status_of(error)); }
    void OnDone() override { delete this; }
  };

  Impl(RpcServerOptions given, std::map<std::string, RpcHandler> handlers)
      : options(std::move(given)),
        methods(std::move(handlers)),
        verifier(options.security.job, options.security.token) {}

  Reactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    try {
      const auto& metadata = context->client_metadata();
      const auto claims = metadata.find(kClaimsHeader);
      if (claims == metadata.end()) {
        throw Unauthenticated(
            "expected a caller of this job, got one that does not say to which it belongs: no part "
            "of Cohort, or of another version");
      }
      const std::string_view header(claims->second.data(), claims->second.size());
      RpcClaims caller = verifier.verify(header, context->method());
      const auto method = methods.find(context->method());
      if (method == methods.end()) {
        throw Unimplemented(
            str_cat("there is no method \"", context->method(),
                    "\" here; the caller is of another version, or took this task for another"));
      }
      return new CallReactor(this, method->second, std::move(caller));
    } catch (const std::exception& e) {
      return new Refusal(e);
    }
  }

  // False: it comes too late.
  bool enter(const HeldCall& call) {
    const base::MutexLock lock(mutex);
    if (!stopping) open.insert(call);
    return !stopping;
  }
  void leave(const HeldCall& call) {
    const base::MutexLock lock(mutex);
    open.erase(call);
  }

  // Without certificates callers are as little proved over gRPC.
  void open_lanes() {
    if (options.lanes.empty() || !lanes_are_allowed()) return;
    if (options.security.has_tls() && options.security.token.empty()) return;
    std::vector<LaneServer::Method> offered;
    for (const std::string& each : options.lanes) {
      const auto found = methods.find(kMethodPrefix + each);
      COHORT_CHECK(found != methods.end(), "[rpc] no method \"", each, "\"");
      offered.push_back({each, &found->second});
    }
    try {
      lanes.emplace(std::move(offered), &verifier);
    } catch (const std::exception& e) {
      COHORT_LOG(kWarning, e.what(), "; all calls go over gRPC");
    }
  }

  LaneOffer offer() {
    const base::MutexLock lock(mutex);
    return stopping || !lanes ? LaneOffer{} : lanes->offer();
  }

  void start() {
    open_lanes();
    check_reachable_safely(options.address, options.security);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options.address, server_credentials(options.security), &port);
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(options.most_message_bytes);
    builder.SetMaxSendMessageSize(options.most_message_bytes);
    // Else two servers share one port, and each gets half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
    // Connections without a call: strangers open them, and machines that are gone leave them.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.idle_milliseconds);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfOne);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // clients look for us
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostHeaderBytes);
    server = builder.BuildAndStart();
    if (!server || port == 0) {
      throw Error(ErrorCode::kAlreadyExists,
                  str_cat("[rpc] expected to listen at ", options.address,
                          ", but the system refuses it: another program listens there, the address "
                          "is not of this machine, or a certificate is damaged"));
    }
    bound_port = port;
  }

  void stop() {
    HeldCalls waiting;
    {
      const base::MutexLock lock(mutex);
      stopping = true;
      waiting.swap(open);
    }
    for (const auto& each : waiting) {
      if (const auto call = each.lock()) call->finish(status_of(server_ends()));
    }
    lanes.reset();
    if (server) server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  const RpcServerOptions options;
  std::map<std::string, RpcHandler> methods;  // as they are, once it has started
  ClaimsVerifier verifier;
  int bound_port = 0;
  base::Mutex mutex;
  bool stopping COHORT_GUARDED_BY(mutex) = false;
  HeldCalls open COHORT_GUARDED_BY(mutex);
  std::optional<LaneServer> lanes;
  std::unique_ptr<grpc::Server> server;
};

RpcServer::RpcServer(RpcServerOptions options, std::map<std::string, RpcHandler> methods)
    : impl_([&] {
        std::map<std::string, RpcHandler> named;
        for (auto& [name, handler] : methods) named[kMethodPrefix + name] = std::move(handler);
        auto made = std::make_unique<Impl>(std::move(options), std::move(named));
        made->methods.emplace(std::string(kMethodPrefix) + kLaneMethod,
                              [impl = made.get()](const RpcRequest&, const RpcReply& reply) {
                                reply.send(offer_payload(impl->offer()));
                              });
        return made;
      }()) {
  impl_->start();
}

RpcServer::~RpcServer() { impl_->stop(); }

std::size_t RpcServer::lanes() const { return impl_->lanes ? impl_->lanes->lanes() : 0; }

int RpcServer::port() const { return impl_->bound_port; }

std::string RpcServer::address() const {
  const std::string& told = impl_->options.address;
  return str_cat(told.substr(0, told.rfind(':')), ":", impl_->bound_port);
}

}  // namespace cohort::internal::rpc
