// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/errors.h"

#include "cohort/base/strings.h"

namespace cohort::internal::rpc {

std::exception_ptr error_with(ErrorCode code, const std::string& text, const std::string& peer) {
  if (code == kUnauthenticatedCode) return std::make_exception_ptr(Unauthenticated(text));
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return std::make_exception_ptr(InvalidArgument(text));
    case ErrorCode::kFailedPrecondition:
      return std::make_exception_ptr(FailedPrecondition(text));
    case ErrorCode::kUnavailable:
      return std::make_exception_ptr(Unavailable(text, peer));
    case ErrorCode::kDeadlineExceeded:
      return std::make_exception_ptr(DeadlineExceeded(text));
    case ErrorCode::kCancelled:
      return std::make_exception_ptr(Cancelled(text));
    case ErrorCode::kDataLoss:
      return std::make_exception_ptr(DataLoss(text));
    case ErrorCode::kUnimplemented:
      return std::make_exception_ptr(Unimplemented(text));
    case ErrorCode::kInternal:
      return std::make_exception_ptr(Internal(text));
    default:
      return std::make_exception_ptr(Error(code, text));
  }
}

namespace {

std::string what_happened(ErrorCode code, const std::string& text) {
  switch (code) {
    case ErrorCode::kUnavailable:
      return str_cat("does not answer: ", text,
                     ". Its process has ended or is cut off; see its output");
    case ErrorCode::kDeadlineExceeded:
      return str_cat("has not answered in time: ", text,
                     ". Its process is stopped, busy or cut off");
    default:
      return text;
  }
}

}  // namespace

std::exception_ptr call_error(const CalledServer& server, const std::string& method,
                              std::chrono::steady_clock::time_point begun, ErrorCode code,
                              const std::string& text) {
  using std::chrono::milliseconds;
  const auto ms =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  return error_with(code,
                    str_cat("[rpc] ", server.name, " (", server.address, "), asked for \"", method,
                            "\": ", what_happened(code, text), " (after ",
                            static_cast<double>(ms.count()) / 1000, " s)"),
                    server.address);
}

}  // namespace cohort::internal::rpc
