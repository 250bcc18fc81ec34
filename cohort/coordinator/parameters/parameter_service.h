// SPDX-License-Identifier: Apache-2.0
//
// A parameter server: it keeps variables, or shards of them, and applies gradients to them. Workers
// reach it by ParameterServers (parameter_servers.h).
//
//   auto parameters = std::make_shared<ParameterService>();
//   RpcServer server({.address = address}, parameter_methods(parameters));
//
// The first server of a job also keeps the directory: which variables there are, and on which
// servers their shards lie. So whichever process asks first for a variable makes it, and all others
// find it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {

struct ParameterServiceOptions {
  /// Of changes that wait for the ends of their functions: beyond it functions fail, instead of the
  /// server.
  std::size_t most_prepared_bytes = std::size_t{1} << 30;
};

/// Threads: thread-safe. What is asked of it is done by threads of its own, several at once; an
/// update of one variable, as far as one message brings it, is one step to all who read it.
class ParameterService {
 public:
  explicit ParameterService(ParameterServiceOptions options = ParameterServiceOptions());
  ~ParameterService();
  ParameterService(const ParameterService&) = delete;
  ParameterService& operator=(const ParameterService&) = delete;

  /// Forgets all variables: another coordinator begins. Who asks for an old one gets an error.
  void reset();
  /// The chief of this generation has come: calls of those before it are refused from here on.
  /// `then`: when none of them is being done any more, perhaps at once, and behind a reset() if it
  /// begins anew. Blocks: never.
  void follow(uint64_t generation, bool is_anew, std::function<void()> then);
  /// Bytes of variables and slots.
  std::size_t bytes() const;

  // For one that is a state of several servers (replicated_state.h): the same calls in the same
  // order give the same bytes on all of them.
  enum class Kind { kNone, kRead, kChange, kChangeOnce };
  static Kind kind_of(const std::string& method);
  /// Without a number, done by the caller's thread. Errors: as the call's; Unavailable for
  /// "ps.bind" of a variable that is not ready.
  rpc::Payload ask(const std::string& method, const rpc::Payload& payload);
  /// Forgets all, and counts ids from here.
  void begin(uint64_t first_id);
  /// Owns: a share of all tensors, which are copied before they are changed while it is there.
  rpc::Payload snapshot() const;
  /// Errors: DataLoss.
  void restore(const rpc::Payload& snapshot);
  /// Errors: std::bad_alloc where the call would not get its memory now.
  void check_room(const std::string& method, const rpc::Payload& payload) const;

 private:
  struct Impl;
  friend std::map<std::string, rpc::RpcHandler> parameter_methods(
      std::shared_ptr<ParameterService>);
  const std::unique_ptr<Impl> impl_;
};

/// "ps.pull" and the others, for an RpcServer. Each is done for the generation of its caller's
/// claims, and refused by FailedPrecondition where a newer one has come.
std::map<std::string, rpc::RpcHandler> parameter_methods(std::shared_ptr<ParameterService> service);
/// Those that carry numbers: for RpcServerOptions::lanes.
std::vector<std::string> parameter_lanes();

}  // namespace cohort::internal::coordinator
