// SPDX-License-Identifier: Apache-2.0
//
// Errors that travel: a code and a text on the wire, one of Cohort's classes on either side.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include "cohort/base/error.h"

namespace cohort::internal::rpc {

/// gRPC's UNAUTHENTICATED: the caller has not shown that it belongs to the job.
constexpr ErrorCode kUnauthenticatedCode{16};
class Unauthenticated : public Error {
 public:
  explicit Unauthenticated(const std::string& text) : Error(kUnauthenticatedCode, text) {}
};

/// The class with this code. `peer`: whose an Unavailable is.
std::exception_ptr error_with(ErrorCode code, const std::string& text, const std::string& peer);

/// Who was called, for error texts.
struct CalledServer {
  std::string name = {};
  std::string address = {};
};
/// Of a call that was begun then: names server, address, method, seconds and what to do.
std::exception_ptr call_error(const CalledServer& server, const std::string& method,
                              std::chrono::steady_clock::time_point begun, ErrorCode code,
                              const std::string& text);

}  // namespace cohort::internal::rpc
