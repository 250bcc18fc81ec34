// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/claims.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::rpc {
namespace {

constexpr const char* kClaims = "[rpc] ";
// Calls of one client arrive in another order than they were signed in, but not by more than this.
constexpr std::size_t kWindow = 1024;
// Of clients; a job has one or two for each task.
constexpr std::size_t kMostSessions = 8192;

std::string proof_of(const Secret& token, std::string_view method, std::string_view claims) {
  MessageWriter signed_bytes;
  signed_bytes.text(method);
  signed_bytes.text(claims);
  std::array<unsigned char, EVP_MAX_MD_SIZE> out = {};
  unsigned int size = 0;
  const auto key = token.bytes();
  const auto* data = reinterpret_cast<const unsigned char*>(signed_bytes.str().data());
  COHORT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data,
                    signed_bytes.str().size(), out.data(), &size) != nullptr,
               "no HMAC-SHA256 in this OpenSSL");
  return {reinterpret_cast<const char*>(out.data()), size};
}

}  // namespace

ClaimsSigner::ClaimsSigner(Secret token) : token_(std::move(token)) {
  COHORT_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&session_), sizeof session_) == 1,
               "the system gives no random bytes");
}

std::string ClaimsSigner::header(const RpcClaims& claims, std::string_view method) {
  uint64_t count = 0;
  {
    const base::MutexLock lock(mutex_);
    count = ++count_;
  }
  MessageWriter out;
  out.text(claims.job);
  out.text(claims.task);
  out.number(claims.generation);
  out.number(session_);
  out.number(count);
  MessageWriter header;
  header.text(out.str());
  header.text(token_.empty() ? "" : proof_of(token_, method, out.str()));
  return header.str();
}

ClaimsVerifier::ClaimsVerifier(std::string job, Secret token)
    : job_(std::move(job)), token_(std::move(token)) {}

RpcClaims ClaimsVerifier::verify(std::string_view header, std::string_view method) {
  try {
    MessageReader outer(kClaims, header);
    const std::string text = outer.text();
    const std::string proof = outer.text();
    outer.end();
    if (!token_.empty()) {
      const std::string right = proof_of(token_, method, text);
      const bool same = proof.size() == right.size() &&
                        CRYPTO_memcmp(proof.data(), right.data(), right.size()) == 0;
      if (!same) throw Unauthenticated("");
    }
    MessageReader in(kClaims, text);
    RpcClaims claims{.job = in.text(), .task = in.text(), .generation = in.number()};
    const uint64_t session = in.number();
    const uint64_t count = in.number();
    in.end();
    if (claims.job != job_) throw Unauthenticated("");
    if (!token_.empty()) {
      const base::MutexLock lock(mutex_);
      check_fresh(session, count);
    }
    return claims;
  } catch (const Error&) {
    throw Unauthenticated(
        "expected a caller of this job, which knows its token (COHORT_JOB_TOKEN) and calls itself; "
        "got another one, or a call that was sent before");
  }
}

void ClaimsVerifier::check_fresh(uint64_t session, uint64_t count) {
  const auto [found, is_new] = sessions_.try_emplace(session);
  Session& entry = found->second;
  if (is_new) {
    entry.window.used.resize(kWindow);
    entry.place = order_.insert(order_.end(), session);
  } else {
    order_.splice(order_.end(), order_, entry.place);
  }
  Window& window = entry.window;
  if (count + kWindow <= window.highest) throw Unauthenticated("");
  if (count > window.highest) {
    const uint64_t first = std::max(window.highest + 1, count < kWindow ? 0 : count - kWindow + 1);
    for (uint64_t n = first; n <= count; ++n) window.used[n % kWindow] = false;
    window.highest = count;
  }
  if (window.used[count % kWindow]) throw Unauthenticated("");
  window.used[count % kWindow] = true;
  if (sessions_.size() <= kMostSessions) return;
  sessions_.erase(order_.front());
  order_.pop_front();
}

}  // namespace cohort::internal::rpc
