// SPDX-License-Identifier: Apache-2.0
//
// The authority of one job, and the certificates that it signs for the job's hosts.
//
//   const JobAuthority authority("mnist_4f1c");
//   const IssuedCertificate of_node1 = authority.issue("node1");
//   // To node1: of_node1, and authority.certificate()
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/rpc/errors.h"

namespace cohort::internal::rpc {

/// Both in PEM. The key is for nobody else.
struct IssuedCertificate {
  std::string certificate = {};
  std::string key = {};
};

/// Threads: immutable. Owns: its key, which is in this object alone and is gone with it: nobody can
/// take part in the job afterwards who does not already.
class JobAuthority {
 public:
  explicit JobAuthority(const std::string& job);
  ~JobAuthority();
  JobAuthority(const JobAuthority&) = delete;
  JobAuthority& operator=(const JobAuthority&) = delete;

  /// In PEM; by it certificates are believed.
  const std::string& certificate() const { return certificate_; }

  static constexpr std::chrono::hours kLongestJob{24 * 400};
  /// For a host by the name, or the address, by which the others reach it ("[::1]" for IPv6). It
  /// serves both sides of a connection, and holds from a day ago: clocks differ.
  IssuedCertificate issue(const std::string& host, std::chrono::hours valid = kLongestJob) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

}  // namespace cohort::internal::rpc
