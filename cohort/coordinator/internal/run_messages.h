// SPDX-License-Identifier: Apache-2.0
//
// What coordinator and worker say to each other about functions: several at once, so that small
// ones do not cost a message each.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "cohort/coordinator/internal/call_codec.h"
#include "cohort/coordinator/internal/sync_pushes.h"

namespace cohort::internal::coordinator {

inline constexpr const char* kRunMethod = "worker.run";

/// What makes a worker's resource.
struct ResourceRecipe {
  enum class Kind : uint8_t { kFunction, kIterator };
  uint64_t id = 0;
  Kind kind = Kind::kFunction;
  std::string function = {};     ///< Of kFunction.
  EncodedValues arguments = {};  ///< Of kFunction.
  uint64_t dataset = 0;          ///< Of kIterator: the resource that it reads.
};

struct CallRequest {
  uint64_t id = 0;
  uint64_t attempt = 0;  ///< Of one whose effects count once; 0: they are done at once.
  std::string function = {};
  EncodedValues arguments = {};
};

/// First the resources, then the calls, in their order.
struct RunRequest {
  uint64_t session = 0;
  SyncPushes sync_pushes = {};  ///< The same in all of a session.
  std::vector<uint64_t> dropped = {};
  std::vector<ResourceRecipe> made = {};
  std::vector<CallRequest> calls = {};
};

struct CallAnswer {
  enum class State : uint8_t { kValue, kError, kNotRun };
  uint64_t id = 0;
  State state = State::kNotRun;
  std::vector<uint64_t> prepared = {};  ///< Effects by server, of one that counts once.
  EncodedValues value = {};
  std::exception_ptr error = {};
};

struct RunAnswer {
  uint64_t nanoseconds = 0;  ///< Of all calls that were run.
  std::vector<CallAnswer> calls = {};
};

rpc::Payload to_payload(const RunRequest& request);
rpc::Payload to_payload(RunAnswer answer);
// Errors, of both: DataLoss.
RunRequest run_request_of(const rpc::Payload& payload);
/// `worker`: stands behind the texts of errors.
RunAnswer run_answer_of(const rpc::Payload& payload, const std::string& worker);

}  // namespace cohort::internal::coordinator
