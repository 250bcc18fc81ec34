// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/errors.h"

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

}  // namespace cohort::internal::rpc
