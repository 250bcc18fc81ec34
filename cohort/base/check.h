// SPDX-License-Identifier: Apache-2.0
//
// Checks that throw. The text is only built when the check fails:
//
//   COHORT_CHECK_ARG(n == 4, "[strategy.run] expected 4 values, got ", n);
#pragma once

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

/// Throws InvalidArgument: the caller gave something wrong.
#define COHORT_CHECK_ARG(condition, ...) \
  if (condition) [[likely]] {            \
  } else                                 \
    throw ::cohort::InvalidArgument(::cohort::str_cat(__VA_ARGS__))

/// Throws FailedPrecondition: right call, wrong state.
#define COHORT_CHECK_STATE(condition, ...) \
  if (condition) [[likely]] {              \
  } else                                   \
    throw ::cohort::FailedPrecondition(::cohort::str_cat(__VA_ARGS__))

/// Throws Internal: an invariant of Cohort is broken.
#define COHORT_CHECK(condition, ...) \
  if (condition) [[likely]] {        \
  } else                             \
    throw ::cohort::Internal(::cohort::str_cat("[internal] " #condition ": ", __VA_ARGS__))
