// SPDX-License-Identifier: Apache-2.0
// Which sanitizer a source is compiled with, whatever the compiler: GCC defines a macro for each,
// Clang answers a question.
#pragma once

#if !defined(__has_feature)
#define COHORT_HAS_FEATURE(name) 0
#else
#define COHORT_HAS_FEATURE(name) __has_feature(name)
#endif

/// 1 with AddressSanitizer, else 0.
#if defined(__SANITIZE_ADDRESS__) || COHORT_HAS_FEATURE(address_sanitizer)
#define COHORT_ADDRESS_SANITIZER 1
#else
#define COHORT_ADDRESS_SANITIZER 0
#endif

/// 1 with AddressSanitizer or ThreadSanitizer, which bring an operator new of their own, need far
/// more address space, and may start no threads after a fork; else 0.
#if COHORT_ADDRESS_SANITIZER || defined(__SANITIZE_THREAD__) || COHORT_HAS_FEATURE(thread_sanitizer)
#define COHORT_UNDER_SANITIZER 1
#else
#define COHORT_UNDER_SANITIZER 0
#endif
