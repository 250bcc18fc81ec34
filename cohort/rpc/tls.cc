// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/tls.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/rpc/internal/openssl_parts.h"

namespace cohort::internal::rpc {
namespace {

// What one record takes.
constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// What is read ahead: several records by one call of the system.
constexpr std::size_t kReadAheadBytes = std::size_t{128} << 10;
constexpr const char* kCiphers =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// TLS_AES_128_GCM_SHA256, whose hash a shared secret's is.
constexpr std::array<unsigned char, 2> kSecretCipher = {0x13, 0x01};
constexpr std::string_view kSecretName = "cohort";
constexpr const char* kClosed = "the connection was closed";

TlsLink& link_of(BIO* bio) { return *static_cast<TlsLink*>(BIO_get_data(bio)); }

bool is_only_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN;
}

// OpenSSL's own sockets raise SIGPIPE where the other side is gone.
int link_write(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  TlsLink& link = link_of(bio);
  const ssize_t sent =
      ::send(link.fd, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  link.error = sent < 0 ? errno : 0;
  if (sent < 0 && is_only_later(link.error)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int link_read(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  TlsLink& link = link_of(bio);
  const ssize_t got = ::recv(link.fd, bytes, static_cast<std::size_t>(count), MSG_DONTWAIT);
  link.error = got < 0 ? errno : 0;
  if (got < 0 && is_only_later(link.error)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long link_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* link_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cohort socket");
    COHORT_CHECK(made != nullptr, "no memory for a connection's methods");
    BIO_meth_set_write(made, link_write);
    BIO_meth_set_read(made, link_read);
    BIO_meth_set_ctrl(made, link_control);
    return made;
  }();
  return method;
}

OpenSslContext new_context() {
  OpenSslContext context(SSL_CTX_new(TLS_method()));
  COHORT_CHECK(context != nullptr, "no TLS in this OpenSSL");
  SSL_CTX* const c = context.get();
  SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(c, kCiphers);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_mode(c, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadAheadBytes);
  return context;
}

void check_file(bool good, const std::string& path, const char* what) {
  COHORT_CHECK_ARG(good, "[tls] expected a file in PEM with ", what, ", got \"", path, "\"");
}

}  // namespace

struct TlsContext::Impl {
  OpenSslContext context = new_context();
  // Of a secret; wiped with it.
  std::array<unsigned char, 32> key = {};
  bool is_secret = false;
  ~Impl() { OPENSSL_cleanse(key.data(), key.size()); }
};

namespace {

// What two who share a secret go on from, as if they had met before.
SSL_SESSION* session_of_secret(SSL* ssl) {
  const auto* key =
      static_cast<const std::array<unsigned char, 32>*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  SSL_SESSION* session = SSL_SESSION_new();
  const bool good =
      session != nullptr && SSL_SESSION_set1_master_key(session, key->data(), key->size()) == 1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSecretCipher.data())) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (good) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_secret(SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** name, std::size_t* bytes,
                 SSL_SESSION** session) {
  *session = session_of_secret(ssl);
  *name = reinterpret_cast<const unsigned char*>(kSecretName.data());
  *bytes = kSecretName.size();
  return *session == nullptr ? 0 : 1;
}

int find_secret(SSL* ssl, const unsigned char* name, std::size_t bytes, SSL_SESSION** session) {
  const bool known = std::string_view(reinterpret_cast<const char*>(name), bytes) == kSecretName;
  *session = known ? session_of_secret(ssl) : nullptr;
  return 1;
}

}  // namespace

TlsContext TlsContext::of_certificates(const RpcSecurity& security) {
  auto impl = std::make_shared<Impl>();
  SSL_CTX* const c = impl->context.get();
  check_file(SSL_CTX_use_certificate_chain_file(c, security.certificate.c_str()) == 1,
             security.certificate, "a certificate");
  check_file(SSL_CTX_use_PrivateKey_file(c, security.key.c_str(), SSL_FILETYPE_PEM) == 1,
             security.key, "the certificate's key");
  check_file(SSL_CTX_load_verify_locations(c, security.authority.c_str(), nullptr) == 1,
             security.authority, "an authority's certificate");
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return TlsContext(std::move(impl));
}

TlsContext TlsContext::of_secret(const Secret& secret, const std::string& purpose) {
  COHORT_CHECK_ARG(!secret.empty(), "[tls] expected a secret, got none");
  auto impl = std::make_shared<Impl>();
  SSL_CTX* const c = impl->context.get();
  unsigned int size = 0;
  const auto bytes = secret.bytes();
  COHORT_CHECK(HMAC(EVP_sha256(), bytes.data(), static_cast<int>(bytes.size()),
                    reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(),
                    impl->key.data(), &size) != nullptr,
               "no HMAC-SHA256 in this OpenSSL");
  impl->is_secret = true;
  SSL_CTX_set_app_data(c, &impl->key);
  SSL_CTX_set_psk_use_session_callback(c, offer_secret);
  SSL_CTX_set_psk_find_session_callback(c, find_secret);
  // Who comes with a certificate instead of the secret is believed by nobody.
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return TlsContext(std::move(impl));
}

struct TlsSession::Impl {
  Impl(const TlsContext& context, TlsSide side, int fd, const std::string& host)
      : owner(context.impl_), link{.fd = fd}, ssl(SSL_new(owner->context.get())) {
    BIO* const bio = BIO_new(link_method());
    COHORT_CHECK(ssl != nullptr && bio != nullptr, "no memory for a TLS session");
    BIO_set_data(bio, &link);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
    if (side == TlsSide::kServer) {
      SSL_set_accept_state(ssl.get());
      // It has no certificate, so without the secret there is no handshake at all.
      if (owner->is_secret) SSL_set_verify(ssl.get(), SSL_VERIFY_NONE, nullptr);
      return;
    }
    SSL_set_connect_state(ssl.get());
    if (host.empty()) return;
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) == 1) return;
    SSL_set1_host(ssl.get(), host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  }

  // What a call of OpenSSL's that has not worked has met; empty: nothing, it is only too early.
  std::string failure(int result) COHORT_REQUIRES(mutex) {
    const int what = SSL_get_error(ssl.get(), result);
    if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) return {};
    if (what == SSL_ERROR_ZERO_RETURN) return kClosed;
    if (what == SSL_ERROR_SYSCALL) {
      return link.error == 0 ? kClosed : std::system_category().message(link.error);
    }
    const unsigned long code = ERR_get_error();
    if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return kClosed;
    const char* reason = ERR_reason_error_string(code);
    std::string out = str_cat(kRefused, reason == nullptr ? "it has failed" : reason);
    const long verified = SSL_get_verify_result(ssl.get());
    if (verified != X509_V_OK) out += str_cat(" (", X509_verify_cert_error_string(verified), ")");
    return out;
  }

  // The bytes that one record takes, from parts[] behind the first `skip`. What lies together is
  // not copied.
  std::size_t gather(std::span<const iovec> parts, std::size_t skip) COHORT_REQUIRES(mutex) {
    std::size_t count = 0;
    from = staging.data();
    for (const iovec& part : parts) {
      if (skip >= part.iov_len) {
        skip -= part.iov_len;
        continue;
      }
      const auto* bytes = static_cast<const std::byte*>(part.iov_base) + skip;
      const std::size_t here = std::min(part.iov_len - skip, kRecordBytes - count);
      skip = 0;
      if (here == kRecordBytes) {
        from = bytes;
        return here;
      }
      std::memcpy(staging.data() + count, bytes, here);
      count += here;
      if (count == kRecordBytes) break;
    }
    return count;
  }

  void count_record() COHORT_REQUIRES(mutex) {
    if (++records < records_per_key) return;
    records = 0;
    // The other side hears of it with the next record.
    if (SSL_key_update(ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) ++keys;
  }

  const std::shared_ptr<TlsContext::Impl> owner;
  base::Mutex mutex;
  TlsLink link COHORT_GUARDED_BY(mutex);
  const OpenSslSession ssl;
  std::array<std::byte, kRecordBytes> staging COHORT_GUARDED_BY(mutex) = {};
  // A record that OpenSSL has encrypted, but the system has not taken whole.
  const std::byte* from COHORT_GUARDED_BY(mutex) = nullptr;
  std::size_t staged COHORT_GUARDED_BY(mutex) = 0;
  uint64_t records COHORT_GUARDED_BY(mutex) = 0;
  uint64_t records_per_key COHORT_GUARDED_BY(mutex) = kRecordsPerKey;
  uint64_t keys COHORT_GUARDED_BY(mutex) = 1;
};

TlsSession::TlsSession(const TlsContext& context, TlsSide side, int fd, const std::string& host)
    : impl_(std::make_unique<Impl>(context, side, fd, host)) {}
TlsSession::~TlsSession() = default;

TlsSession::Handshake TlsSession::shake_hands(std::string* why) {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  ERR_clear_error();
  const int result = SSL_do_handshake(i.ssl.get());
  if (result == 1) return Handshake::kDone;
  const int what = SSL_get_error(i.ssl.get(), result);
  if (what == SSL_ERROR_WANT_READ) return Handshake::kWantsToRead;
  if (what == SSL_ERROR_WANT_WRITE) return Handshake::kWantsToWrite;
  *why = i.failure(result);
  return Handshake::kFailed;
}

ssize_t TlsSession::send(std::span<const iovec> parts, std::string* why) {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  std::size_t sent = 0;
  for (;;) {
    if (i.staged == 0) i.staged = i.gather(parts, sent);
    if (i.staged == 0) return static_cast<ssize_t>(sent);
    ERR_clear_error();
    std::size_t written = 0;
    // What was encrypted before is not read again: only the number has to be the same.
    if (SSL_write_ex(i.ssl.get(), i.from, i.staged, &written) != 1) {
      *why = i.failure(0);
      if (why->empty()) i.from = i.staging.data();
      return why->empty() ? static_cast<ssize_t>(sent) : -1;
    }
    sent += std::exchange(i.staged, 0);
    i.count_record();
  }
}

bool TlsSession::has_begun_to_send() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->staged > 0;
}

ssize_t TlsSession::receive(std::byte* to, std::size_t bytes, std::string* why) {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  std::size_t got = 0;
  while (got < bytes) {
    ERR_clear_error();
    std::size_t now = 0;
    if (SSL_read_ex(i.ssl.get(), to + got, bytes - got, &now) != 1) {
      *why = i.failure(0);
      if (why->empty() || got > 0) break;  // what has come counts first
      return -1;
    }
    got += now;
  }
  return static_cast<ssize_t>(got);
}

bool TlsSession::is_peer_for(const std::string& host) const {
  const base::MutexLock lock(impl_->mutex);
  const OpenSslCertificate theirs(SSL_get1_peer_certificate(impl_->ssl.get()));
  if (!theirs) return true;
  return X509_check_ip_asc(theirs.get(), host.c_str(), 0) == 1 ||
         X509_check_host(theirs.get(), host.c_str(), host.size(), 0, nullptr) == 1;
}

void TlsSession::change_key_after(uint64_t records) {
  const base::MutexLock lock(impl_->mutex);
  impl_->records_per_key = records;
}

uint64_t TlsSession::keys() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->keys;
}

}  // namespace cohort::internal::rpc
