// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/errors.h"

#include <c10/util/Exception.h>

#include <cstdlib>

#include "cohort/base/check.h"

namespace cohort::internal::data {
namespace {

/// Calls `use` with an error of the class that stands for `code`.
template <class Use>
auto as_class(ErrorCode code, const std::string& text, const Use& use) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return use(InvalidArgument(text));
    case ErrorCode::kFailedPrecondition:
      return use(FailedPrecondition(text));
    case ErrorCode::kDeadlineExceeded:
      return use(DeadlineExceeded(text));
    case ErrorCode::kCancelled:
      return use(Cancelled(text));
    case ErrorCode::kDataLoss:
      return use(DataLoss(text));
    case ErrorCode::kUnimplemented:
      return use(Unimplemented(text));
    case ErrorCode::kInternal:
      return use(Internal(text));
    default:
      return use(Error(code, text));
  }
}

[[noreturn]] void throw_as(ErrorCode code, const std::string& text) {
  as_class(code, text, [](const auto& error) { std::throw_with_nested(error); });
  std::abort();  // Not reached: every branch throws.
}

// `where` and what was thrown behind it, with the step's tag, "[dataset.map] ", once.
std::string in_place(const std::string& where, const std::string& what) {
  const std::size_t tag = where.find("] ");
  const bool repeats = tag != std::string::npos && what.compare(0, tag + 2, where, 0, tag + 2) == 0;
  return str_cat(where, ": ", repeats ? what.substr(tag + 2) : what);
}

}  // namespace

std::exception_ptr make_error(ErrorCode code, const std::string& text) {
  return as_class(code, text, [](const auto& error) { return std::make_exception_ptr(error); });
}

void rethrow_with_context(const std::string& where) {
  try {
    throw;
  } catch (const Unavailable& e) {
    std::throw_with_nested(Unavailable(in_place(where, e.what()), e.peer()));
  } catch (const Error& e) {
    throw_as(e.code(), in_place(where, e.what()));
  } catch (const c10::Error& e) {
    throw_as(ErrorCode::kUnknown, in_place(where, e.what_without_backtrace()));
  } catch (const std::exception& e) {
    throw_as(ErrorCode::kUnknown, in_place(where, e.what()));
  }
  // Anything else is not ours to name, and goes on as it is.
}

}  // namespace cohort::internal::data
