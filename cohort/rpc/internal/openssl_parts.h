// SPDX-License-Identifier: Apache-2.0
//
// Owners of OpenSSL's objects; included by sources alone.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

namespace cohort::internal::rpc {

template <auto kFree>
struct OpenSslFree {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using OpenSslContext = std::unique_ptr<SSL_CTX, OpenSslFree<SSL_CTX_free>>;
using OpenSslSession = std::unique_ptr<SSL, OpenSslFree<SSL_free>>;
using OpenSslCertificate = std::unique_ptr<X509, OpenSslFree<X509_free>>;
using OpenSslKey = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;
using OpenSslBio = std::unique_ptr<BIO, OpenSslFree<BIO_free>>;

/// What a session goes through, and how the last call of the system failed there.
struct TlsLink {
  int fd = -1;
  int error = 0;
};

}  // namespace cohort::internal::rpc
