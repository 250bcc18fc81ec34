// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/job_authority.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>

#include <array>

#include "cohort/base/check.h"
#include "cohort/rpc/internal/openssl_parts.h"

namespace cohort::internal::rpc {
namespace {

constexpr std::chrono::hours kClocksDiffer{24};
// The most that a certificate's name takes.
constexpr std::size_t kLongestName = 64;

void made(bool good, const char* what) { COHORT_CHECK(good, "OpenSSL cannot make ", what); }

OpenSslKey new_key() {
  OpenSslKey key(EVP_EC_gen("P-256"));
  made(key != nullptr, "a key");
  return key;
}

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const OpenSslBio bio(BIO_new(BIO_s_mem()));
  made(bio && PEM_write_bio_X509(bio.get(), certificate) == 1, "a certificate's text");
  return text_of(bio.get());
}

std::string pem_of(EVP_PKEY* key) {
  const OpenSslBio bio(BIO_new(BIO_s_secmem()));
  made(bio && PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
       "a key's text");
  return text_of(bio.get());
}

void extend(X509* certificate, X509* issuer, int which, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, which, value.c_str());
  const bool good = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  made(good, "a certificate's extension");
}

// A number of its own, so that no two of one authority have the same.
void set_number(X509* certificate) {
  std::array<unsigned char, 16> bytes = {};
  made(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "random bytes");
  bytes[0] &= 0x7F;
  BIGNUM* number = BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr);
  const bool good = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  made(good, "a certificate's number");
}

OpenSslCertificate new_certificate(const std::string& name, EVP_PKEY* key,
                                   std::chrono::hours valid) {
  OpenSslCertificate out(X509_new());
  made(out != nullptr, "a certificate");
  X509* const x = out.get();
  X509_set_version(x, X509_VERSION_3);
  set_number(x);
  const std::string short_name = name.substr(0, kLongestName);
  made(X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                                  reinterpret_cast<const unsigned char*>(short_name.data()),
                                  static_cast<int>(short_name.size()), -1, 0) == 1,
       "a certificate's name");
  X509_gmtime_adj(X509_getm_notBefore(x), -std::chrono::seconds(kClocksDiffer).count());
  X509_gmtime_adj(X509_getm_notAfter(x), std::chrono::seconds(valid).count());
  X509_set_pubkey(x, key);
  return out;
}

// "IP:10.0.0.1" or "DNS:node1".
std::string other_name(std::string host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  std::array<unsigned char, sizeof(in6_addr)> address = {};
  const bool is_ip = ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
                     ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
  COHORT_CHECK_ARG(is_ip || (!host.empty() && host.find_first_of(",;=\n :/") == std::string::npos),
                   "[tls] expected the name of a host, got \"", host, "\"");
  return str_cat(is_ip ? "IP:" : "DNS:", host);
}

}  // namespace

struct JobAuthority::Impl {
  OpenSslKey key = new_key();
  OpenSslCertificate certificate;
};

JobAuthority::JobAuthority(const std::string& job) : impl_(std::make_unique<Impl>()) {
  impl_->certificate = new_certificate("Cohort job " + job, impl_->key.get(), kLongestJob);
  X509* const own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  extend(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  extend(own, own, NID_key_usage, "critical,keyCertSign");
  extend(own, own, NID_subject_key_identifier, "hash");
  made(X509_sign(own, impl_->key.get(), EVP_sha256()) > 0, "an authority's certificate");
  certificate_ = pem_of(own);
}

JobAuthority::~JobAuthority() = default;

IssuedCertificate JobAuthority::issue(const std::string& host, std::chrono::hours valid) const {
  X509* const authority = impl_->certificate.get();
  const std::string name = other_name(host);
  const OpenSslKey key = new_key();
  const OpenSslCertificate certificate = new_certificate(host, key.get(), valid);
  X509* const own = certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(authority));
  extend(own, authority, NID_basic_constraints, "critical,CA:FALSE");
  extend(own, authority, NID_key_usage, "critical,digitalSignature");
  extend(own, authority, NID_ext_key_usage, "serverAuth,clientAuth");
  extend(own, authority, NID_subject_alt_name, name);
  extend(own, authority, NID_authority_key_identifier, "keyid");
  made(X509_sign(own, impl_->key.get(), EVP_sha256()) > 0, "a host's certificate");
  return {.certificate = pem_of(own), .key = pem_of(key.get())};
}

}  // namespace cohort::internal::rpc
