// SPDX-License-Identifier: Apache-2.0
#include "ps_grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/check.h"
#include "ps_limits.h"

namespace cohort::bench {
namespace {

constexpr std::size_t kBytes = 4 << 20;
constexpr int kMostBytes = 64 << 20;

void nothing(void*) {}

/// All of it, without a copy.
grpc::ByteBuffer as_buffer(std::vector<char>& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size(), nothing, nullptr);
  return {&slice, 1};
}

void copy_out(const grpc::ByteBuffer& buffer, std::vector<char>& to) {
  std::vector<grpc::Slice> slices;
  COHORT_CHECK(buffer.Dump(&slices).ok(), "no bytes");
  std::size_t at = 0;
  for (const grpc::Slice& each : slices) {
    COHORT_CHECK(at + each.size() <= to.size(), "too many bytes");
    std::memcpy(to.data() + at, each.begin(), each.size());
    at += each.size();
  }
}

class Store final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Call(this, context->method() == "/push");
  }

 private:
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call(Store* store, bool is_push) : store_(store), is_push_(is_push) { StartRead(&request_); }
    void OnReadDone(bool) override {
      if (is_push_) {
        copy_out(request_, store_->bytes_);
        answer_ = as_buffer(store_->one_);
      } else {
        answer_ = as_buffer(store_->bytes_);
      }
      StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    Store* const store_;
    const bool is_push_;
    grpc::ByteBuffer request_, answer_;
  };

  std::vector<char> bytes_ = std::vector<char>(kBytes);
  std::vector<char> one_ = std::vector<char>(1);
};

struct Client {
  Client() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMostBytes);
    stub = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        "127.0.0.1:" + server.port, grpc::InsecureChannelCredentials(), arguments));
  }

  void exchange(bool is_push) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.set_wait_for_ready(true);
    const grpc::ByteBuffer request = as_buffer(is_push ? bytes : one);
    grpc::ByteBuffer answer;
    std::promise<grpc::Status> done;
    stub->UnaryCall(&context, is_push ? "/push" : "/pull", {}, &request, &answer,
                    [&](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    if (!status.ok()) throw Unavailable(status.error_message(), "the store");
    copy_out(answer, is_push ? one : bytes);
  }

  Server server{"--serve-grpc"};
  std::unique_ptr<grpc::GenericStub> stub;
  std::vector<char> bytes = std::vector<char>(kBytes);
  std::vector<char> one = std::vector<char>(1);
};

}  // namespace

Way grpc_way(bool is_push) {
  const auto client = std::make_shared<Client>();
  return {"grpc",
          [client, is_push](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) client->exchange(is_push);
            return us_since(begin, steps);
          },
          client->server.process.process_group()};
}

int serve_grpc() {
  Store store;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&store);
  builder.SetMaxReceiveMessageSize(kMostBytes);
  const auto server = builder.BuildAndStart();
  COHORT_CHECK(server && port != 0, "cannot listen");
  std::printf("ready %d\n", port);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace cohort::bench
