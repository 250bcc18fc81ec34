// SPDX-License-Identifier: Apache-2.0
//
// What the tasks of a job prove themselves with, to each other and to the job's store; and how the
// cohortruns of its nodes do.
#pragma once

#include <string>
#include <vector>

#include "cohort/rpc/security.h"
#include "cohort/rpc/tls.h"

namespace cohortrun {

/// What the tasks of one node are given.
struct TaskSecurity {
  std::string job = {};
  std::string token = {};
  /// In PEM, of an authority of this attempt's own. Empty: no TLS, or by files that they know.
  std::string certificate = {};
  std::string key = {};
  std::string authority = {};
  bool allow_insecure = false;
};

/// What the user says of it.
struct SecuritySettings {
  bool tls = false;                             ///< On this host, too.
  bool allow_insecure = false;                  ///< Beyond this host without TLS.
  cohort::internal::rpc::RpcSecurity own = {};  ///< What cohortrun's environment has already.
};

/// For each of the hosts in one attempt, which those of an attempt before do not fit. Certificates
/// where a host is beyond loopback, or TLS is asked for.
/// Errors: cohort::Error for a host that no certificate can name.
std::vector<TaskSecurity> security_of_nodes(const SecuritySettings& settings,
                                            const std::string& run_id, int attempt,
                                            const std::vector<std::string>& hosts);

/// How the cohortruns of a job speak to each other: by the token that all were given, else by
/// certificates that they were given, else in the open.
cohort::internal::rpc::TlsContext tls_between_nodes(const cohort::internal::rpc::RpcSecurity& own);

/// Files that only this user can read, in memory where the system has such; gone at the end. What
/// a cohortrun has left behind that was killed is swept away by the user's next one.
class SecretFiles {
 public:
  /// Errors: std::runtime_error that names the file which cannot be made.
  explicit SecretFiles(const TaskSecurity& security);
  ~SecretFiles();
  SecretFiles(const SecretFiles&) = delete;
  SecretFiles& operator=(const SecretFiles&) = delete;

  /// What tells a task of them: "NAME=value", or "NAME" of what it must not find.
  const std::vector<std::string>& environment() const { return environment_; }
  /// As a task of this node has it.
  const cohort::internal::rpc::RpcSecurity& security() const { return security_; }

 private:
  std::string write(const std::string& name, const std::string& text);

  std::string folder_;
  int owner_ = -1;  // a lock on the folder, which ends with this process
  std::vector<std::string> environment_;
  cohort::internal::rpc::RpcSecurity security_;
};

}  // namespace cohortrun
