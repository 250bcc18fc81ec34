// SPDX-License-Identifier: Apache-2.0
//
// What server and client share of gRPC; included by sources alone.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <exception>
#include <memory>

#include "cohort/rpc/payload.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::rpc {

/// The header of a call's claims.
inline constexpr const char* kClaimsHeader = "cohort-claims-bin";
inline constexpr const char* kMethodPrefix = "/cohort/";

/// Without copying what is large.
grpc::ByteBuffer to_grpc(const Payload& payload);
Payload from_grpc(const grpc::ByteBuffer& bytes);

/// An Error's code and text.
grpc::Status status_of(const std::exception& error);

/// Errors: InvalidArgument for a file that cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const RpcSecurity& security);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const RpcSecurity& security);

}  // namespace cohort::internal::rpc
