// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/grpc_parts.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::internal::rpc {
namespace {

// Smaller pieces are cheaper copied than counted.
constexpr std::size_t kCopiedBytes = 1024;
// Texts travel in a header, which has little room.
constexpr std::size_t kLongestText = 4096;

void drop_owner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice slice_of(const Payload::Piece& piece) {
  // gRPC does not write to what it sends.
  auto* bytes = const_cast<std::byte*>(piece.bytes.data());
  if (piece.bytes.size() <= kCopiedBytes || !piece.owner) return {bytes, piece.bytes.size()};
  return {bytes, piece.bytes.size(), drop_owner, new std::shared_ptr<const void>(piece.owner)};
}

std::string pem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  COHORT_CHECK_ARG(file.good() && !text.str().empty(),
                   "[rpc] expected a file in PEM that can be read, got \"", path, "\"");
  return std::move(text).str();
}

}  // namespace

grpc::ByteBuffer to_grpc(const Payload& payload) {
  std::vector<grpc::Slice> slices;
  for (const Payload::Piece& piece : payload.pieces()) slices.push_back(slice_of(piece));
  return {slices.data(), slices.size()};
}

Payload from_grpc(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  Payload out;
  if (!bytes.Valid() || !bytes.Dump(&slices).ok()) return out;
  for (grpc::Slice& slice : slices) {
    auto owner = std::make_shared<grpc::Slice>(std::move(slice));
    const std::span all(reinterpret_cast<const std::byte*>(owner->begin()), owner->size());
    out.append({.bytes = all, .owner = std::move(owner)});
  }
  return out;
}

grpc::Status status_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const auto code = ours == nullptr ? ErrorCode::kUnknown : ours->code();
  return {static_cast<grpc::StatusCode>(code), std::string(error.what()).substr(0, kLongestText)};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const RpcSecurity& security) {
  if (!security.has_tls()) return grpc::InsecureServerCredentials();
  // Who has no certificate of the job's authority gets no further than the handshake.
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem(security.authority);
  options.pem_key_cert_pairs.push_back({pem(security.key), pem(security.certificate)});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const RpcSecurity& security) {
  if (!security.has_tls()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = pem(security.authority),
                               .pem_private_key = pem(security.key),
                               .pem_cert_chain = pem(security.certificate)});
}

}  // namespace cohort::internal::rpc
