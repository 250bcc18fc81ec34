// SPDX-License-Identifier: Apache-2.0
//
// Who may take part in a job: a token that all its tasks know, and TLS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cohort/rpc/errors.h"

namespace cohort::internal::rpc {

/// Bytes that no text, log or core file gets: they can be used, not printed.
/// Threads: immutable. Owns: a share of the bytes, which are wiped with the last one.
class Secret {
 public:
  Secret() = default;
  /// Errors: Error kResourceExhausted.
  explicit Secret(std::string_view bytes);
  bool empty() const { return size_ == 0; }
  std::span<const unsigned char> bytes() const { return {memory_.get(), size_}; }
  /// Of 32 bytes that nobody can guess.
  static Secret random();

 private:
  std::shared_ptr<unsigned char> memory_;
  std::size_t size_ = 0;
};

struct RpcSecurity {
  std::string job = {};  ///< Tells jobs of one token apart.
  /// Empty: calls are not authenticated.
  Secret token = {};
  /// Files in PEM: this task's certificate and key, and the authority that has signed those of all
  /// tasks. All or none.
  std::string certificate = {};
  std::string key = {};
  std::string authority = {};
  /// Allows addresses beyond loopback without TLS.
  bool allow_insecure = false;
  bool has_tls() const { return !certificate.empty(); }
};

/// COHORT_JOB_ID; COHORT_JOB_TOKEN, or the file that COHORT_JOB_TOKEN_FILE names;
/// COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_AUTHORITY; COHORT_ALLOW_INSECURE=1.
/// Errors: InvalidArgument that names the variable, and never its value, for a file that cannot be
///         read, a token of fewer than 16 bytes, and one or two files of three.
RpcSecurity security_from_environment();

/// Whether "host:port" stands for addresses of this machine's loopback alone.
/// Errors: InvalidArgument for what is none; Unavailable for a name that stands for nothing.
bool is_loopback_target(const std::string& address);
/// Errors: InvalidArgument for an address beyond loopback without TLS or allow_insecure.
void check_reachable_safely(const std::string& address, const RpcSecurity& security);

}  // namespace cohort::internal::rpc
