// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/security.h"

#include <netdb.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/base/scope_exit.h"
#include "cohort/rpc/loopback.h"

namespace cohort::internal::rpc {
namespace {

constexpr std::size_t kShortestToken = 16;

std::string rpc_variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string file_text(const char* variable, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  COHORT_CHECK_ARG(file.good(), "[rpc] expected ", variable,
                   " to name a file that can be read, got \"", path, "\"");
  return std::move(text).str();
}

Secret token_from_environment() {
  const char* variable = "COHORT_JOB_TOKEN";
  std::string token = rpc_variable(variable);
  const std::string path = rpc_variable("COHORT_JOB_TOKEN_FILE");
  if (token.empty() && path.empty()) return {};
  if (token.empty()) {
    variable = "COHORT_JOB_TOKEN_FILE";
    token = file_text(variable, path);
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  }
  COHORT_CHECK_ARG(token.size() >= kShortestToken, "[rpc] expected ", variable,
                   " to give at least ", kShortestToken, " bytes that nobody can guess, got ",
                   token.size());
  Secret secret(token);
  ::explicit_bzero(token.data(), token.size());
  return secret;
}

std::string host_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  COHORT_CHECK_ARG(colon != std::string::npos && colon > 0 && colon + 1 < address.size(),
                   "[rpc] expected \"host:port\", got \"", address, "\"");
  const std::string host = address.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

// A page of its own: it can be left out of core files, and nothing else lies beside it.
Secret::Secret(std::string_view bytes) : size_(bytes.size()) {
  if (bytes.empty()) return;
  const std::size_t size = size_;
  void* page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[rpc] expected memory for a token, got: ", std::strerror(errno)));
  }
  ::madvise(page, size, MADV_DONTDUMP);
  std::memcpy(page, bytes.data(), size);
  memory_ = {static_cast<unsigned char*>(page), [size](unsigned char* memory) {
               ::explicit_bzero(memory, size);
               ::munmap(memory, size);
             }};
}

Secret Secret::random() {
  std::array<unsigned char, 32> bytes = {};
  COHORT_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
               "the system gives no random bytes");
  Secret secret(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  ::explicit_bzero(bytes.data(), bytes.size());
  return secret;
}

RpcSecurity security_from_environment() {
  RpcSecurity out{.job = rpc_variable("COHORT_JOB_ID"),
                  .token = token_from_environment(),
                  .certificate = rpc_variable("COHORT_TLS_CERTIFICATE"),
                  .key = rpc_variable("COHORT_TLS_KEY"),
                  .authority = rpc_variable("COHORT_TLS_AUTHORITY"),
                  .allow_insecure = rpc_variable("COHORT_ALLOW_INSECURE") == "1"};
  const bool all = !out.certificate.empty() && !out.key.empty() && !out.authority.empty();
  const bool none = out.certificate.empty() && out.key.empty() && out.authority.empty();
  COHORT_CHECK_ARG(all || none,
                   "[rpc] expected COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_AUTHORITY "
                   "together, or none of them, got some");
  return out;
}

bool is_loopback_target(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host_of(address).c_str(), nullptr, &hints, &found);
  if (error != 0) {
    throw Unavailable(str_cat("[rpc] expected a host name that can be resolved, got \"", address,
                              "\": ", ::gai_strerror(error)),
                      address);
  }
  const base::ScopeExit freed([found] { ::freeaddrinfo(found); });
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (!is_loopback_address(each->ai_addr)) return false;
  }
  return true;
}

void check_reachable_safely(const std::string& address, const RpcSecurity& security) {
  if (security.has_tls() || security.allow_insecure) {
    host_of(address);
    return;
  }
  COHORT_CHECK_ARG(is_loopback_target(address),
                   "[rpc] expected an address of this machine's loopback, such as localhost:2222, "
                   "got ",
                   address,
                   ": beyond it give TLS certificates (COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY, "
                   "COHORT_TLS_AUTHORITY), or, on a network that you trust, allow_insecure");
}

}  // namespace cohort::internal::rpc
