// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/client.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include <condition_variable>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/rpc/internal/grpc_parts.h"
#include "cohort/rpc/internal/open_calls.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// A server that has started again is found within this.
constexpr int kReconnectMilliseconds = 100;
constexpr int kMostReconnectMilliseconds = 1000;
// The least that one attempt has, TLS included: a machine may be busy.
constexpr int kConnectMilliseconds = 5000;

grpc::ChannelArguments channel_arguments(std::chrono::milliseconds quiet) {
  grpc::ChannelArguments out;
  out.SetMaxReceiveMessageSize(kMostMessageBytes);
  out.SetMaxSendMessageSize(kMostMessageBytes);
  out.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy is for strangers
  out.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  out.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  out.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  out.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds);
  out.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMostReconnectMilliseconds);
  // Pings while there are calls, and TCP_USER_TIMEOUT, which bounds a write without an end.
  out.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(quiet.count()));
  out.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(quiet.count()));
  out.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as it takes
  return out;
}

constexpr std::chrono::seconds kAskForLanes{5};

}  // namespace

struct RpcClient::Impl {
  using Call = OpenCalls::Call;

  explicit Impl(RpcClientOptions given)
      : options(std::move(given)),
        signer(options.security.token),
        claims(options.claims),
        server{.name = options.server_name, .address = options.address},
        door({.server = server,
              .ask = [this] { ask_for_lanes(); },
              .proof = [this] { return header(kLaneMethod); }}),
        stub(grpc::CreateCustomChannel(options.address, channel_credentials(options.security),
                                       channel_arguments(options.most_silence))),
        calls([this](const OpenCall& call, ErrorCode code, const std::string& what) {
          return error_of(call, code, what);
        }) {
    claims.job = options.security.job;
  }

  std::string header(const std::string& method) {
    RpcClaims mine;
    {
      const base::MutexLock lock(mutex);
      mine = claims;
    }
    return signer.header(mine, method);
  }

  void start(const Call& call, std::chrono::milliseconds timeout) {
    call->deadline = call->begun + timeout;
    call->context->set_deadline(std::chrono::system_clock::now() + timeout);
    call->context->AddMetadata(kClaimsHeader, header(call->method));
    if (!calls.enter(call)) {
      return call->done({.error = error_of(*call, ErrorCode::kCancelled, "the client was ended")});
    }
    OpenCall& c = *call;
    stub.UnaryCall(c.context.get(), c.method, {}, &c.request, &c.answer,
                   [this, call](const grpc::Status& status) { finish(call, status); });
  }

  void finish(const Call& call, const grpc::Status& status) {
    RpcResult result;
    if (status.ok()) {
      result.payload = from_grpc(call->answer);
    } else {
      const grpc::Status why = seen_from_here(status);
      result.error = error_of(*call, static_cast<ErrorCode>(why.error_code()), why.error_message());
    }
    calls.end(call, std::move(result));
  }

  std::exception_ptr error_of(const OpenCall& call, ErrorCode code, const std::string& what) const {
    const std::string method = call.method.substr(std::char_traits<char>::length(kMethodPrefix));
    return call_error(server, method, call.begun, code, what);
  }

  void ask_for_lanes() {
    auto call = std::make_shared<OpenCall>();
    call->method = std::string(kMethodPrefix) + kLaneMethod;
    call->request = to_grpc(Payload());
    call->done = [this](const RpcResult& result) { door.told(result); };
    start(call, kAskForLanes);
  }

  // A call that was cancelled, but not by us, was cut off by a server that ends.
  grpc::Status seen_from_here(const grpc::Status& status) const {
    const bool by_grpc = status.error_message() == "CANCELLED";  // a handler's has a text
    if (!by_grpc || status.error_code() != grpc::StatusCode::CANCELLED || calls.is_cancelled()) {
      return status;
    }
    return {grpc::StatusCode::UNAVAILABLE, "the server has ended"};
  }

  void cancel() {
    door.cancel();
    calls.cancel();
  }

  const RpcClientOptions options;
  const bool takes_lanes = options.lanes && lanes_are_allowed();
  ClaimsSigner signer;
  base::Mutex mutex;
  RpcClaims claims COHORT_GUARDED_BY(mutex);
  const CalledServer server;
  LaneDoor door;
  grpc::GenericStub stub;
  OpenCalls calls;  // the last: calls use all of the above
};

RpcClient::RpcClient(RpcClientOptions options)
    : impl_([&] {
        check_reachable_safely(options.address, options.security);
        return std::make_unique<Impl>(std::move(options));
      }()) {}

RpcClient::~RpcClient() {
  impl_->cancel();
  impl_->calls.wait_for_all();
}

void RpcClient::cancel() { impl_->cancel(); }

void RpcClient::set_claims(RpcClaims claims) {
  claims.job = impl_->options.security.job;
  {
    const base::MutexLock lock(impl_->mutex);
    if (impl_->claims == claims) return;
    impl_->claims = std::move(claims);
  }
  impl_->door.open_anew();
}

LaneStart RpcClient::start_in_lane(const std::string& method, const Payload& request,
                                   const RpcCallOptions& options) {
  if (!impl_->takes_lanes) return {};
  const auto deadline = Clock::now() + options.timeout;
  const std::shared_ptr<Lane> lane = impl_->door.lane(options.timeout);
  if (!lane) return {};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return lane->start(method, request, left, options.answer_bytes, options.answer_to);
}

bool RpcClient::has_lane() const { return impl_->door.is_open(); }

void RpcClient::start(const std::string& method, Payload request, RpcCallOptions options,
                      std::function<void(RpcResult)> done) {
  auto call = std::make_shared<OpenCall>();
  call->method = kMethodPrefix + method;
  call->request = to_grpc(request);
  call->done = std::move(done);
  call->context->set_wait_for_ready(options.wait_for_server);
  impl_->start(call, options.timeout);
}

Payload RpcClient::call(const std::string& method, Payload request, RpcCallOptions options) {
  struct Waiting {
    base::Mutex mutex;
    std::condition_variable_any changed;
    bool over COHORT_GUARDED_BY(mutex) = false;
    RpcResult result COHORT_GUARDED_BY(mutex);
  };
  const auto waiting = std::make_shared<Waiting>();
  start(method, std::move(request), options, [waiting](RpcResult result) {
    const base::MutexLock lock(waiting->mutex);
    waiting->result = std::move(result);
    waiting->over = true;
    waiting->changed.notify_all();
  });
  const base::MutexLock lock(waiting->mutex);
  Waiting& w = *waiting;
  w.changed.wait(w.mutex, [&w]() COHORT_REQUIRES(w.mutex) { return w.over; });
  if (w.result.error) std::rethrow_exception(w.result.error);
  return std::move(w.result.payload);
}

}  // namespace cohort::internal::rpc
