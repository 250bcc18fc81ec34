// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.3 over a socket of one's own, for bytes that are no calls (client.h): tensors between
// workers, what the launchers of several hosts say to each other. Both sides are proved, or none
// gets a word.
//
//   const TlsContext context = TlsContext::of_certificates(security);
//   TlsSession session(context, TlsSide::kClient, socket, "node1");
//   const ssize_t sent = session.send(parts, &why);
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cohort/rpc/security.h"

namespace cohort::internal::rpc {

enum class TlsSide { kClient, kServer };

/// By what the two sides of a connection prove themselves. Threads: immutable.
class TlsContext {
 public:
  /// None: what takes one works without TLS.
  TlsContext() = default;
  /// By certificates of one authority.
  /// Errors: InvalidArgument that names the file which is none.
  static TlsContext of_certificates(const RpcSecurity& security);
  /// By a secret that both have; `purpose` keeps what it is used for apart.
  static TlsContext of_secret(const Secret& secret, const std::string& purpose);

  explicit operator bool() const { return impl_ != nullptr; }

 private:
  friend class TlsSession;
  struct Impl;
  explicit TlsContext(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// Threads: thread-safe.
class TlsSession {
 public:
  /// Over a socket that stays the caller's. `host`: whom a client expects the other one's
  /// certificate to be for. Nothing is sent yet: send() and receive() begin with the handshake.
  TlsSession(const TlsContext& context, TlsSide side, int fd, const std::string& host = {});
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// How `why` begins where the connection stands, but one side does not believe the other.
  static constexpr const char* kRefused = "TLS: ";
  enum class Handshake { kDone, kWantsToRead, kWantsToWrite, kFailed };
  /// Goes on with it. Blocks: never.
  Handshake shake_hands(std::string* why);

  /// Sends what can be sent now, and returns how many bytes that was; -1 and `why` if none can be
  /// any more. After fewer than all the next call begins with the bytes that are left: the first of
  /// them may have been encrypted already. Blocks: never.
  ssize_t send(std::span<const iovec> parts, std::string* why);
  /// Whether bytes were encrypted that send() has not counted yet.
  bool has_begun_to_send() const;
  /// Reads all that is there, as far as there is room; -1 and `why` if nothing comes any more.
  /// Blocks: never.
  ssize_t receive(std::byte* to, std::size_t bytes, std::string* why);

  /// Whether the other one's certificate is for this host, too; true without certificates.
  bool is_peer_for(const std::string& host) const;

  /// After so many records of 16 KiB at most the key is changed; far below what one is safe for.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;
  /// For tests.
  void change_key_after(uint64_t records);
  uint64_t keys() const;  ///< That were used to send.

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::rpc
