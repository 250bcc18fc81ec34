// SPDX-License-Identifier: Apache-2.0
//
// The errors that Cohort throws. A text reads "[operation] expected ..., got ...":
//
//   try { strategy.run(step, batch); }
//   catch (const cohort::InvalidArgument& e) { std::puts(e.what()); }
//
// End of data is never an error, it is std::nullopt.
#pragma once

#include <stdexcept>
#include <string>

namespace cohort {

/// gRPC's status codes, with their numbers.
enum class ErrorCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

/// The code's name as gRPC spells it, e.g. "INVALID_ARGUMENT".
const char* error_code_name(ErrorCode code);

/// Base of all exceptions of Cohort. Subclasses exist only where a caller would catch them.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Shapes, types, options, names: fix the call. TF: ValueError, TypeError, KeyError.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& text) : Error(ErrorCode::kInvalidArgument, text) {}
};

/// The call is right, the state is not (wrong context, not built). TF: RuntimeError.
class FailedPrecondition : public Error {
 public:
  explicit FailedPrecondition(const std::string& text)
      : Error(ErrorCode::kFailedPrecondition, text) {}
};

/// Another process, or a server, is lost or cannot be reached: peer() names it.
class Unavailable : public Error {
 public:
  Unavailable(const std::string& text, std::string peer)
      : Error(ErrorCode::kUnavailable, text), peer_(std::move(peer)) {}
  const std::string& peer() const { return peer_; }

 private:
  std::string peer_;
};

/// A wait reached its time limit; the peer may still live.
class DeadlineExceeded : public Error {
 public:
  explicit DeadlineExceeded(const std::string& text) : Error(ErrorCode::kDeadlineExceeded, text) {}
};

/// The work was given up because another replica or task failed, or because it was cancelled.
class Cancelled : public Error {
 public:
  explicit Cancelled(const std::string& text) : Error(ErrorCode::kCancelled, text) {}
};

/// A file or message is damaged.
class DataLoss : public Error {
 public:
  explicit DataLoss(const std::string& text) : Error(ErrorCode::kDataLoss, text) {}
};

/// Not implemented in this version, or never to be: the text says which.
class Unimplemented : public Error {
 public:
  explicit Unimplemented(const std::string& text) : Error(ErrorCode::kUnimplemented, text) {}
};

/// A broken invariant of Cohort itself.
class Internal : public Error {
 public:
  explicit Internal(const std::string& text) : Error(ErrorCode::kInternal, text) {}
};

}  // namespace cohort
